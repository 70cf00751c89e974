package build

import (
	"context"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/mcp"
	"github.com/agentteams/team-server/pkg/remote"
)

// Parts builds single models, remote agents and tools of a definition as Register does, so that one that cannot
// be built or reached does not hinder the others. It is for commands, has connections of its own and logs nothing. It is
// safe for concurrent use.
type Parts struct{ b *builder }

// OpenParts returns the parts of a definition. The caller must close them.
func OpenParts(def *config.Config) (Parts, error) {
	out, err := egress.New(egress.Config{})
	if err != nil {
		return Parts{}, err
	}
	guarded, err := egress.NewGuarded(def.EgressAllow()...)
	if err != nil {
		out.Close()
		return Parts{}, err
	}
	return Parts{&builder{Config: Config{Definition: def, Egress: out, Guarded: guarded, Log: zap.NewNop()}, server: def.Server}}, nil
}

// Close closes idle connections. Calls after it make new ones.
func (p Parts) Close() {
	p.b.Egress.Close()
	p.b.Guarded.Close()
}

// Model builds a model, without its fallbacks.
func (p Parts) Model(name string) (agent.Model, error) {
	m := p.b.server.GetModels()[name]
	return p.b.newModel(name, m, m.GetSettings())
}

// A2A builds an agent that speaks A2A. The caller must close it.
func (p Parts) A2A(id string) (*remote.A2A, error) { return p.b.newA2A(id, p.b.server.GetAgents()[id]) }

// GRPC builds an agent that implements the Agent service. The caller must close it.
func (p Parts) GRPC(id string) (*remote.Agent, error) {
	return p.b.newGRPC(id, p.b.server.GetAgents()[id])
}

// Tool starts an MCP server, or connects to it, and lists its tools. The caller must close it.
func (p Parts) Tool(ctx context.Context, name string) (*mcp.Server, error) {
	return mcp.Start(ctx, p.b.mcp(name, p.b.server.GetTools()[name].GetMcp()))
}

// UsedTools returns the names of the tools that the served agents use.
func (p Parts) UsedTools() map[string][]string {
	b := *p.b
	b.IDs = b.Definition.Used
	return b.usedTools()
}
