package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/bearer"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/mcp"
	"github.com/agentteams/team-server/pkg/secret"
)

// ToolFaults are the reasons why tools prevent agents from being built.
type ToolFaults []ToolFault

// ToolFault says why a tool prevents agents from being built.
type ToolFault struct {
	IDs []string // agents and teams that use the tool
	Why string   // message for clients, without internal details
	Err error    // the complete error, for the log
}

// Error returns the complete errors, one per line.
func (f ToolFaults) Error() string {
	texts := make([]string, len(f))
	for i, fault := range f {
		texts[i] = fault.Err.Error()
	}
	return strings.Join(texts, "\n")
}

// startWait is how long the start of the agents waits for MCP servers that are not required. They go on
// starting meanwhile.
const startWait = 3 * time.Second

// startTools starts the MCP servers that the agents use, concurrently. The error is ToolFaults.
func (b *builder) startTools() error {
	var mu sync.Mutex // guards faults and b.agents
	var faults ToolFaults
	var wg sync.WaitGroup
	for name, ids := range b.usedTools() {
		wg.Go(func() {
			s := b.sharedTool(name)
			shared, err := s != nil, error(nil)
			if !shared {
				s, err = b.startTool(name)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				faults = append(faults, ToolFault{ids, fmt.Sprintf("tool %q does not start", name), b.placed(name, err)})
				return
			}
			b.agents.tools[name] = s
			if !shared {
				b.agents.closers = append(b.agents.closers, s)
			}
		})
	}
	wg.Wait()
	if len(faults) == 0 {
		return nil
	}
	slices.SortFunc(faults, func(a, b ToolFault) int { return strings.Compare(a.Why, b.Why) })
	return faults
}

// placed returns an error of a tool with the place of the tool in the file, unless it has it.
func (b *builder) placed(name string, err error) error {
	place := config.Place(b.Definition, "tools", name)
	if place == "" || strings.Contains(err.Error(), place) {
		return err
	}
	return fmt.Errorf("%s: %w", place, err)
}

// startTool starts an MCP server, which runs until it is closed. One that is not required may be down or slow. One that
// answers, but not with what the file says that it has, is an error either way.
func (b *builder) startTool(name string) (*mcp.Server, error) {
	def := b.server.GetTools()[name].GetMcp()
	if def.GetRequired() {
		return mcp.Start(context.Background(), b.mcp(name, def))
	}
	s, err := mcp.New(b.mcp(name, def))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	_, err = s.Tools(ctx)
	var unavailable *agent.Error
	switch {
	case err == nil:
		return s, nil
	case errors.As(err, &unavailable), errors.Is(err, context.DeadlineExceeded):
		b.Log.Warn("an MCP server does not answer, and its tools are missing until it does; team-server doctor shows why", zap.String("tool", name), zap.Error(err))
		return s, nil
	}
	_ = s.Close()
	return nil, err
}

// sharedTool returns a tool that was already started for other agents, or nil.
func (b *builder) sharedTool(name string) *mcp.Server {
	for _, from := range b.From {
		if s := from.tools[name]; s != nil {
			return s
		}
	}
	return nil
}

// usedTools returns the MCP servers of the agents to build, with the ids of the agents and teams that use
// them.
func (b *builder) usedTools() map[string][]string {
	used := map[string][]string{}
	for id, is := range b.IDs {
		if !is {
			continue
		}
		for _, name := range slices.Concat(b.server.GetAgents()[id].GetTools(), modes.Leader(b.server.GetTeams()[id]).GetTools()) {
			if b.server.GetTools()[name].GetMcp() != nil {
				used[name] = append(used[name], id)
			}
		}
	}
	return used
}

// effects maps the values of the configuration to those of agents.
var effects = map[teamv1.ToolEffect_Value]agent.Effect{
	teamv1.ToolEffect_SAFE: agent.EffectSafe, teamv1.ToolEffect_KEYED: agent.EffectKeyed, teamv1.ToolEffect_UNSAFE: agent.EffectUnsafe,
}

// results maps the values of the configuration to those of tools.
var results = map[teamv1.McpResults_Value]mcp.Results{
	teamv1.McpResults_TEXT: mcp.ResultsText, teamv1.McpResults_STRUCTURED: mcp.ResultsStructured, teamv1.McpResults_BOTH: mcp.ResultsBoth,
}

func (b *builder) mcp(name string, m *teamv1.McpTool) mcp.Config {
	c := mcp.Config{
		Name: name, Place: config.Place(b.Definition, "tools", name), Command: m.GetCommand(), Dir: b.Definition.Path("."), Env: map[string]secret.Secret{},
		URL: m.GetUrl(), Bearer: b.Definition.Secret(m.GetBearer()), HTTPClient: b.Egress.HTTPClient(),
		Headers: map[string]secret.Secret{}, Prefix: m.GetPrefix(), Version: m.GetProtocolVersion(),
		Allow: m.GetAllow(), Effects: map[string]agent.Effect{}, Log: b.Log, Results: results[m.GetResults()], Resources: m.Resources,
		StartTimeout: m.GetTimeouts().GetStart().AsDuration(), CallTimeout: m.GetTimeouts().GetCall().AsDuration(),
	}
	for name, value := range m.GetEnv() {
		c.Env[name] = b.Definition.Secret(value)
	}
	for name, value := range m.GetHeaders() {
		c.Headers[name] = b.Definition.Secret(value)
	}
	if m.GetCwd() != "" {
		c.Dir = b.Definition.Path(m.GetCwd())
	}
	if m.GetOauth() != nil {
		c.Tokens = b.tokens(m.GetOauth())
	}
	if abs, err := filepath.Abs(c.Dir); err == nil {
		c.Dir = abs
	}
	if s := b.Definition.ToolScripts[name]; s != nil {
		playTools(&c, s)
	}
	if e := m.GetElicit(); e != nil {
		c.Elicit = &mcp.Elicit{
			Approvers: agent.Approvers{Roles: e.GetRoles(), Expires: e.GetExpires().AsDuration()}, KeepOpen: e.GetKeepOpen().AsDuration(),
		}
	}
	for of, e := range m.GetEffects() {
		if effect, ok := effects[e]; ok {
			c.Effects[of] = effect
		}
	}
	return c
}

// tokens returns the tokens of an OAuth 2 server.
func (b *builder) tokens(o *teamv1.OAuthClient) *bearer.Source {
	return bearer.New(bearer.Config{
		TokenURL: o.GetTokenUrl(), ClientID: o.GetClientId(), ClientSecret: b.Definition.Secret(o.GetClientSecret()),
		Scopes: o.GetScopes(), Params: o.GetParams(), HTTPClient: b.Egress.HTTPClient(),
	})
}

// toolSets returns the tools of an agent, or of the leader of a team. Tools with the same name are
// reported as ToolFaults, because a model could not tell them apart. What a server that has not answered yet will
// offer is checked when runs begin.
func (b *builder) toolSets(id, subject string, names []string) ([]agent.ToolSet, error) {
	var sets []agent.ToolSet
	from := map[string]string{}
	for _, name := range names {
		s, offered := b.agents.tools[name], b.offered(name)
		for _, tool := range offered {
			if other, taken := from[tool]; taken {
				why := fmt.Sprintf("tools %q and %q both have %q; set prefix of one of them, or allow so that only one of them offers it", other, name, tool)
				return nil, ToolFaults{{[]string{id}, why, errors.New(subject + ": " + why)}}
			}
			from[tool] = name
		}
		if s == nil { // a tool of the server itself or of the program
			continue
		}
		def := b.server.GetTools()[name].GetApprove()
		if why := unmatched(name, def, offered); why != "" && s.Answered() {
			return nil, ToolFaults{{[]string{id}, why, errors.New(subject + ": " + why)}}
		}
		if approve := modes.ApproveTool(def); approve != nil {
			set := approvedSet{Server: s, approve: approve}
			if !s.Answered() {
				set.check = func(offered []string) string { return unmatched(name, def, offered) }
			}
			sets = append(sets, set)
			continue
		}
		sets = append(sets, s)
	}
	return sets, nil
}

// offered returns the names under which models know the tools of an entry, as far as they are known.
func (b *builder) offered(name string) (tools []string) {
	if s := b.agents.tools[name]; s != nil {
		for _, t := range s.Known() {
			tools = append(tools, t.Spec().Name)
		}
	}
	own, _ := b.ownTools([]string{name}) // the agent was not built if it fails
	for _, t := range own {
		tools = append(tools, t.Spec().Name)
	}
	return tools
}

// unmatched says that a pattern of approve.tools matches none of the tools that a server offers; "" if each does.
func unmatched(name string, def *teamv1.ApproveTools, offered []string) string {
	pattern := modes.Unmatched(def, offered)
	if pattern == "" {
		return ""
	}
	return fmt.Sprintf("approve.tools of tool %q lists %q, which matches no function of the server; the server offers %s", name, pattern, strings.Join(offered, ", "))
}

// approvedSet is a tool set some of whose calls begin only with the approval of people. approve says
// who decides about a call; see modes.ApproveTool.
type approvedSet struct {
	*mcp.Server
	approve func(tool string, arguments json.RawMessage) *agent.Approvers
	// check returns the fault of approve.tools; nil if it was checked when the set was built.
	check func(offered []string) string
}

// Tools implements agent.ToolSet.
func (s approvedSet) Tools(ctx context.Context) ([]agent.Tool, error) {
	tools, err := s.Server.Tools(ctx)
	approved := make([]agent.Tool, 0, len(tools))
	var offered []string
	for _, t := range tools {
		offered = append(offered, t.Spec().Name)
		if of, ok := t.(serverTool); ok { // all tools of MCP servers are
			approved = append(approved, approvedTool{of, s.approve})
		}
	}
	if err == nil && s.check != nil {
		if why := s.check(offered); why != "" {
			return nil, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, "%s", why)
		}
	}
	return approved, err
}

// serverTool is a tool of an MCP server. Halts name it by its tool set too.
type serverTool interface {
	agent.AskingTool
	ToolSet() string
}

// approvedTool is a tool of an approvedSet.
type approvedTool struct {
	serverTool
	approve func(tool string, arguments json.RawMessage) *agent.Approvers
}

// Approvers implements agent.ApprovedTool.
func (t approvedTool) Approvers(arguments json.RawMessage) *agent.Approvers {
	return t.approve(t.Spec().Name, arguments)
}
