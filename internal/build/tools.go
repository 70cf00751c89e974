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

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
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

// startTools starts the MCP servers that the agents use, concurrently. The error is ToolFaults.
func (b *builder) startTools() error {
	var mu sync.Mutex // guards faults and b.agents
	var faults ToolFaults
	var wg sync.WaitGroup
	for name, ids := range b.usedTools() {
		wg.Go(func() {
			if s := b.sharedTool(name); s != nil {
				mu.Lock()
				defer mu.Unlock()
				b.agents.tools[name] = s
				return
			}
			s, err := mcp.Start(context.Background(), b.mcp(name, b.server.GetTools()[name].GetMcp())) // runs until Close
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				faults = append(faults, ToolFault{ids, fmt.Sprintf("tool %q does not start", name), err})
				return
			}
			b.agents.tools[name] = s
			b.agents.closers = append(b.agents.closers, s)
		})
	}
	wg.Wait()
	if len(faults) == 0 {
		return nil
	}
	slices.SortFunc(faults, func(a, b ToolFault) int { return strings.Compare(a.Why, b.Why) })
	return faults
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

// usedTools returns the tools of the agents to build, with the ids of the agents and teams that use
// them.
func (b *builder) usedTools() map[string][]string {
	used := map[string][]string{}
	for id, is := range b.IDs {
		if !is {
			continue
		}
		for _, name := range slices.Concat(b.server.GetAgents()[id].GetTools(), config.Leader(b.server.GetTeams()[id]).GetTools()) {
			used[name] = append(used[name], id)
		}
	}
	return used
}

// effects maps the values of the configuration to those of agents.
var effects = map[teamv1.ToolEffect_Value]agent.Effect{
	teamv1.ToolEffect_SAFE: agent.EffectSafe, teamv1.ToolEffect_KEYED: agent.EffectKeyed, teamv1.ToolEffect_UNSAFE: agent.EffectUnsafe,
}

func (b *builder) mcp(name string, m *teamv1.McpTool) mcp.Config {
	c := mcp.Config{
		Name: name, Command: m.GetCommand(), Dir: b.Definition.Path("."), Env: map[string]secret.Secret{},
		URL: m.GetUrl(), Bearer: b.Definition.Secret(m.GetBearer()), HTTPClient: b.Egress.HTTPClient(),
		Allow: m.GetAllow(), Effects: map[string]agent.Effect{}, Log: b.Log,
	}
	for name, value := range m.GetEnv() {
		c.Env[name] = b.Definition.Secret(value)
	}
	if abs, err := filepath.Abs(c.Dir); err == nil {
		c.Dir = abs
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

// toolSets returns the tools of an agent, or of the leader of a team. Tools with the same name are
// reported as ToolFaults, because a model could not tell them apart.
func (b *builder) toolSets(id, subject string, names []string) ([]agent.ToolSet, error) {
	var sets []agent.ToolSet
	from := map[string]string{}
	for _, name := range names {
		s := b.agents.tools[name]
		var offered []string
		for _, t := range s.Known() {
			tool := t.Spec().Name
			offered = append(offered, tool)
			if other, taken := from[tool]; taken {
				why := fmt.Sprintf("tools %q and %q both have %q; set allow so that only one of them offers it", other, name, tool)
				return nil, ToolFaults{{[]string{id}, why, errors.New(subject + ": " + why)}}
			}
			from[tool] = name
		}
		if pattern := config.Unmatched(b.server.GetTools()[name].GetApprove(), offered); pattern != "" {
			why := fmt.Sprintf("approve.tools of tool %q lists %q, which matches no function of the server; the server offers %s", name, pattern, strings.Join(offered, ", "))
			return nil, ToolFaults{{[]string{id}, why, errors.New(subject + ": " + why)}}
		}
		if approve := config.ApproveTool(b.server.GetTools()[name].GetApprove()); approve != nil {
			sets = append(sets, approvedSet{s, approve})
			continue
		}
		sets = append(sets, s)
	}
	return sets, nil
}

// approvedSet is a tool set some of whose calls begin only with the approval of people. approve says
// who decides about a call; see config.ApproveTool.
type approvedSet struct {
	*mcp.Server
	approve func(tool string, arguments json.RawMessage) *agent.Approvers
}

// Tools implements agent.ToolSet.
func (s approvedSet) Tools(ctx context.Context) ([]agent.Tool, error) {
	tools, err := s.Server.Tools(ctx)
	approved := make([]agent.Tool, 0, len(tools))
	for _, t := range tools {
		if of, ok := t.(serverTool); ok { // all tools of MCP servers are
			approved = append(approved, approvedTool{of, s.approve})
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
