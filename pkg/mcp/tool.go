package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/traceparent"
	"github.com/agentteams/team-server/pkg/agent"
)

// KeyMeta is the _meta key for the idempotency key of a call. A call that is repeated because its
// outcome is unknown has the same key.
const KeyMeta = "team-server/key"

// list returns the tools that the server has and that are allowed. A program that has exited is
// started again.
func (s *Server) list(ctx context.Context) ([]agent.Tool, error) {
	offers, again, err := s.fetch(ctx)
	if again {
		offers, _, err = s.fetch(ctx)
	}
	if err == nil && s.Known() == nil {
		err = s.missing(offers)
	}
	if err != nil {
		return nil, err
	}
	tools := []agent.Tool{}
	names := map[string]string{}
	for _, t := range offers {
		if s.config.Allow != nil && !slices.Contains(s.config.Allow, t.Name) {
			continue
		}
		spec := s.spec(t)
		if other, taken := names[spec.Name]; taken {
			return nil, fmt.Errorf("the MCP server of tool %q has tools %q and %q, which a model cannot tell apart as %q; set allow so that only one of them is offered",
				s.config.Name, other, t.Name, spec.Name)
		}
		names[spec.Name] = t.Name
		tools = append(tools, &tool{server: s, name: t.Name, spec: spec})
	}
	return tools, nil
}

// fetch lists the tools of the server once. again reports that it failed because the connection had
// ended.
func (s *Server) fetch(ctx context.Context) (offers []*mcp.Tool, again bool, err error) {
	x := &exchange{}
	ctx = observed(ctx, x)
	live, err := s.session(ctx)
	if err != nil {
		return nil, false, err
	}
	params, seen := &mcp.ListToolsParams{}, map[string]bool{}
	for {
		page, err := live.ListTools(ctx, params)
		if err != nil {
			ended := s.ended(ctx, err) || x.outcome().unknownSession
			if ended {
				s.drop(live)
			}
			return nil, ended, s.unreachable(ctx, err, x.outcome())
		}
		offers = append(offers, page.Tools...)
		switch next := page.NextCursor; {
		case next == "" && len(offers) <= maxTools:
			return offers, false, nil
		case seen[next]:
			return nil, false, s.badList("does not end its list of tools: nextCursor is %q again after %d tools", next, len(offers))
		case len(offers) > maxTools:
			return nil, false, s.badList("has more than %d tools", maxTools)
		case len(seen) == maxTools:
			return nil, false, s.badList("does not end its list of tools: it has nextCursor after %d pages with %d tools", maxTools, len(offers))
		default:
			seen[next] = true
			params = &mcp.ListToolsParams{Cursor: next}
		}
	}
}

// badList returns the error of a server whose list of tools cannot be used.
func (s *Server) badList(format string, args ...any) error {
	return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, "the MCP server of tool %q "+format+"; ask its operator", append([]any{s.config.Name}, args...)...)
}

// missing returns an error for an allowed tool that the server does not have.
func (s *Server) missing(tools []*mcp.Tool) error {
	for _, name := range s.config.Allow {
		if name != "*" && !slices.ContainsFunc(tools, func(t *mcp.Tool) bool { return t.Name == name }) {
			var names []string
			for _, t := range tools {
				names = append(names, t.Name)
			}
			return fmt.Errorf("tool %q allows %q, which its MCP server does not have; correct allow: the server has %s", s.config.Name, name, cmp.Or(strings.Join(names, ", "), "no tools"))
		}
	}
	return nil
}

// spec returns the description of a tool for models.
func (s *Server) spec(t *mcp.Tool) agent.ToolSpec {
	spec := agent.ToolSpec{Name: agent.ToolName(s.config.Prefix + t.Name), Description: t.Description, Effect: s.effect(t)}
	if schema, err := json.Marshal(t.InputSchema); err == nil {
		spec.Parameters = agent.ToolParameters(schema)
	}
	if spec.Description == "" {
		spec.Description = t.Title
	}
	return spec
}

// effect returns whether a call of the tool has effects and can be repeated. The configuration
// takes precedence over the annotations of the server.
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

// begin registers a call, which is canceled when the server is closed. The caller must call the
// returned function when the call has ended.
func (s *Server) begin(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, s.unreachable(ctx, errClosed, outcome{})
	}
	s.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(errClosed) })
	return ctx, func() { stop(); cancel(nil); s.calls.Done() }, nil
}

// tool is a tool of a server.
type tool struct {
	server *Server
	name   string // the server's name for it
	spec   agent.ToolSpec
}

// Spec implements agent.Tool.
func (t *tool) Spec() agent.ToolSpec { return t.spec }

// ToolSet returns the name of the tool's MCP server in the configuration, by which it can be halted.
func (t *tool) ToolSet() string { return t.server.config.Name }

// Call implements agent.Tool.
func (t *tool) Call(ctx context.Context, arguments json.RawMessage, key string) (*teamv1.ToolResult, error) {
	params, err := t.params(ctx, arguments, key)
	if err != nil {
		return nil, err
	}
	ctx, done, err := t.server.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	r, err := t.call(ctx, params, nil)
	if err != nil {
		return nil, err
	}
	return t.server.result(r), nil
}

// params returns the parameters of a call. Their _meta has the trace context as well, which is the only place for it in
// calls of a program.
func (t *tool) params(ctx context.Context, arguments json.RawMessage, key string) (*mcp.CallToolParams, error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(arguments, &object) != nil || object == nil {
		e := agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "the arguments must be a JSON object")
		e.Fresh = true
		return nil, e
	}
	meta := mcp.Meta{KeyMeta: key}
	if value := traceparent.Of(ctx); value != "" {
		meta[traceparent.Key] = value
	}
	return &mcp.CallToolParams{Meta: meta, Name: t.name, Arguments: arguments}, nil
}

// call makes the call, again if the connection or the session had ended before it. The questions of the server are
// those of o; nil if it may not ask any.
func (t *tool) call(ctx context.Context, params *mcp.CallToolParams, o *openCall) (*mcp.CallToolResult, error) {
	r, sent, err := t.callOnce(ctx, params, o)
	if err != nil && !sent {
		r, _, err = t.callOnce(ctx, params, o)
	}
	return r, err
}

// callOnce makes the call once. sent reports whether the server may have received it.
func (t *tool) callOnce(ctx context.Context, params *mcp.CallToolParams, o *openCall) (r *mcp.CallToolResult, sent bool, err error) {
	connecting := &exchange{}
	live, release, err := t.server.acquire(observed(ctx, connecting), o)
	if err != nil {
		return nil, true, t.server.unreachable(ctx, err, connecting.outcome())
	}
	answered := false
	defer func() { release(answered) }()
	ctx, token, done := t.server.limited(ctx)
	defer done()
	x, sending := &exchange{}, *params // the library adds to the parameters
	sending.Meta = maps.Clone(sending.Meta)
	sending.SetProgressToken(token)
	r, err = live.CallTool(observed(ctx, x), &sending)
	var refused *jsonrpc.Error
	answered = err == nil || ctx.Err() == nil && x.outcome() == (outcome{}) && errors.As(err, &refused)
	if err == nil {
		return r, true, nil
	}
	seen := x.outcome()
	if t.server.ended(ctx, err) || seen.unknownSession {
		t.server.drop(live)
	}
	if ctx.Err() == nil && !seen.resumed && (seen.unknownSession || seen == (outcome{}) && t.server.config.URL != "" && t.server.ended(ctx, err)) {
		return nil, false, t.server.failure(ctx, t.spec.Name, err, seen)
	}
	return nil, true, t.server.failure(ctx, t.spec.Name, err, seen)
}
