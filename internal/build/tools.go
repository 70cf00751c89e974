package build

import (
	"context"
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
)

// ToolFaults are why tools keep agents from being built.
type ToolFaults []ToolFault

// ToolFault is one of them.
type ToolFault struct {
	IDs []string // of those with a model that have the tool
	Why string   // in words for everybody
	Err error    // what is known of it
}

// Error says what is known.
func (f ToolFaults) Error() string {
	texts := make([]string, len(f))
	for i, fault := range f {
		texts[i] = fault.Err.Error()
	}
	return strings.Join(texts, "\n")
}

// startTools starts the MCP servers that something served uses, at the same time.
// ToolFaults.
func (b *builder) startTools() error {
	var mu sync.Mutex // guards faults and b.agents
	var faults ToolFaults
	var wg sync.WaitGroup
	for name, ids := range b.usedTools() {
		wg.Go(func() {
			if s := b.borrowed(name); s != nil {
				mu.Lock()
				defer mu.Unlock()
				b.agents.tools[name] = s
				return
			}
			s, err := mcp.Start(context.Background(), b.mcp(name, b.server.GetTools()[name].GetMcp())) // it ends with Close
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

// borrowed is a tool that other agents have; nil is none.
func (b *builder) borrowed(name string) *mcp.Server {
	for _, from := range b.From {
		if s := from.tools[name]; s != nil {
			return s
		}
	}
	return nil
}

// usedTools are the tools that agents and leaders have that are built, and who has them.
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

// effects in the words of the file.
var effects = map[teamv1.ToolEffect_Value]agent.Effect{
	teamv1.ToolEffect_SAFE: agent.EffectSafe, teamv1.ToolEffect_KEYED: agent.EffectKeyed, teamv1.ToolEffect_UNSAFE: agent.EffectUnsafe,
}

func (b *builder) mcp(name string, m *teamv1.McpTool) mcp.Config {
	c := mcp.Config{
		Name: name, Command: m.GetCommand(), Dir: b.Definition.Path("."), Env: m.GetEnv(),
		URL: m.GetUrl(), Bearer: m.GetBearer(), HTTPClient: b.Egress.HTTPClient(),
		Allow: m.GetAllow(), Effects: map[string]agent.Effect{}, Log: b.Log,
	}
	if abs, err := filepath.Abs(c.Dir); err == nil {
		c.Dir = abs
	}
	for of, e := range m.GetEffects() {
		if effect, ok := effects[e]; ok {
			c.Effects[of] = effect
		}
	}
	return c
}

// toolSets are the tools of an agent, or of the leader of a team. Two that a model
// cannot tell apart are ToolFaults.
func (b *builder) toolSets(id, subject string, names []string) ([]agent.ToolSet, error) {
	var sets []agent.ToolSet
	from := map[string]string{}
	for _, name := range names {
		s := b.agents.tools[name]
		for _, t := range s.Known() {
			tool := t.Spec().Name
			if other, taken := from[tool]; taken {
				why := fmt.Sprintf("tools %q and %q both have %q; name in allow what each of them offers", other, name, tool)
				return nil, ToolFaults{{[]string{id}, why, errors.New(subject + ": " + why)}}
			}
			from[tool] = name
		}
		sets = append(sets, s)
	}
	return sets, nil
}
