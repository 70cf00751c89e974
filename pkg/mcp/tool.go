package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// KeyMeta is the _meta key under which a call carries its key: the same when it is
// repeated because nobody knows what became of it.
const KeyMeta = "team-server/key"

// list reads what the server offers and may be offered.
func (s *Server) list(ctx context.Context) ([]agent.Tool, error) {
	live, err := s.session(ctx)
	if err != nil {
		return nil, s.unreachable(ctx, err)
	}
	var tools []agent.Tool
	names := map[string]string{}
	count := 0
	for t, err := range live.Tools(ctx, nil) {
		if err != nil {
			if errors.Is(err, mcp.ErrConnectionClosed) {
				s.drop(live)
			}
			return nil, s.unreachable(ctx, err)
		}
		if count++; count > maxTools {
			return nil, fmt.Errorf("the MCP server of tool %q has more than %d tools", s.config.Name, maxTools)
		}
		if s.config.Allow != nil && !slices.Contains(s.config.Allow, t.Name) {
			continue
		}
		spec := s.spec(t)
		if other, taken := names[spec.Name]; taken {
			return nil, fmt.Errorf("the MCP server of tool %q has tools %q and %q, which a model cannot tell apart as %q; name one of them in allow",
				s.config.Name, other, t.Name, spec.Name)
		}
		names[spec.Name] = t.Name
		tools = append(tools, &tool{server: s, name: t.Name, spec: spec})
	}
	return tools, nil
}

// missing reports names in allow and effects that the server does not have.
func (s *Server) missing(tools []agent.Tool) error {
	has := map[string]bool{"*": true}
	var names []string
	for _, t := range tools {
		t, ok := t.(*tool)
		if ok {
			has[t.name] = true
			names = append(names, t.name)
		}
	}
	for _, name := range s.config.Allow {
		if !has[name] {
			return fmt.Errorf("tool %q allows %q, which its MCP server does not have; of those allowed it has: %s", s.config.Name, name, strings.Join(names, ", "))
		}
	}
	return nil
}

// spec is a tool as a model sees it.
func (s *Server) spec(t *mcp.Tool) agent.ToolSpec {
	spec := agent.ToolSpec{Name: agent.ToolName(t.Name), Description: t.Description, Effect: s.effect(t)}
	if schema, err := json.Marshal(t.InputSchema); err == nil && t.InputSchema != nil {
		spec.Parameters = schema
	}
	if spec.Description == "" {
		spec.Description = t.Title
	}
	return spec
}

// effect is what calling the tool twice means.
func (s *Server) effect(t *mcp.Tool) agent.Effect {
	if e, ok := s.config.Effects[t.Name]; ok {
		return e
	}
	if e, ok := s.config.Effects["*"]; ok {
		return e
	}
	switch a := t.Annotations; {
	case a != nil && a.ReadOnlyHint:
		return agent.EffectSafe
	case a != nil && a.IdempotentHint:
		return agent.EffectKeyed
	}
	return agent.EffectUnsafe
}

// tool is a tool of a server.
type tool struct {
	server *Server
	name   string // as the server has it
	spec   agent.ToolSpec
}

// Spec implements agent.Tool.
func (t *tool) Spec() agent.ToolSpec { return t.spec }

// Call implements agent.Tool.
func (t *tool) Call(ctx context.Context, arguments json.RawMessage, key string) (*teamv1.ToolResult, error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(arguments, &object) != nil || object == nil {
		e := agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "the arguments must be a JSON object")
		e.Fresh = true
		return nil, e
	}
	live, err := t.server.session(ctx)
	if err != nil {
		return nil, t.server.unreachable(ctx, err)
	}
	x := &exchange{}
	r, err := live.CallTool(observed(ctx, x), &mcp.CallToolParams{
		Meta: mcp.Meta{KeyMeta: key}, Name: t.name, Arguments: arguments,
	})
	if err != nil {
		if errors.Is(err, mcp.ErrConnectionClosed) || errors.Is(err, mcp.ErrSessionMissing) {
			t.server.drop(live)
		}
		return nil, t.server.failure(ctx, t.spec.Name, err, x)
	}
	return result(r), nil
}
