package build

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/mcp"
)

// startTools starts the MCP servers that something served uses, at the same time.
func (b *builder) startTools() error {
	var mu sync.Mutex // guards errs and b.agents
	var errs []error
	var wg sync.WaitGroup
	for _, name := range b.usedTools() {
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
				errs = append(errs, err)
				return
			}
			b.agents.tools[name] = s
			b.agents.closers = append(b.agents.closers, s)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
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

// usedTools are the tools that agents and leaders have that are built, sorted.
func (b *builder) usedTools() []string {
	used := map[string]bool{}
	for id, a := range b.server.GetAgents() {
		for _, name := range a.GetTools() {
			used[name] = used[name] || b.IDs[id]
		}
	}
	for id, t := range b.server.GetTeams() {
		for _, name := range config.Leader(t).GetTools() {
			used[name] = used[name] || b.IDs[id]
		}
	}
	maps.DeleteFunc(used, func(_ string, used bool) bool { return !used })
	return slices.Sorted(maps.Keys(used))
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

// toolSets are the tools of an agent. Two that a model cannot tell apart are an
// error.
func (b *builder) toolSets(subject string, names []string) ([]agent.ToolSet, error) {
	var sets []agent.ToolSet
	from := map[string]string{}
	for _, name := range names {
		s := b.agents.tools[name]
		for _, t := range s.Known() {
			tool := t.Spec().Name
			if other, taken := from[tool]; taken {
				return nil, fmt.Errorf("%s: tools %q and %q both have %q; name in allow what each of them offers", subject, other, name, tool)
			}
			from[tool] = name
		}
		sets = append(sets, s)
	}
	return sets, nil
}
