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
	has, again, err := s.fetch(ctx)
	if again {
		has, _, err = s.fetch(ctx)
	}
	if err == nil && s.Known() == nil {
		err = s.config.missing(has.tools)
	}
	if err != nil {
		return nil, err
	}
	tools := []agent.Tool{}
	names := map[string]string{}
	for _, t := range has.tools {
		if s.config.Allow != nil && !slices.Contains(s.config.Allow, t.Name) {
			continue
		}
		spec := s.config.spec(t)
		if other, taken := names[spec.Name]; taken {
			return nil, fmt.Errorf("the MCP server of tool %q has tools %q and %q, which a model cannot tell apart as %q; set allow so that only one of them is offered",
				s.config.Name, other, t.Name, spec.Name)
		}
		names[spec.Name] = t.Name
		tools = append(tools, &tool{server: s, name: t.Name, spec: spec})
	}
	if has.resources && s.config.offersResources() {
		tools = append(tools, &reader{server: s, spec: s.config.readerSpec(names)})
	}
	return tools, nil
}

// offers is what a server has for agents.
type offers struct {
	tools     []*mcp.Tool
	resources bool // whether it has resources
}

// fetch lists the tools of the server once. again reports that it failed because the connection had
// ended.
func (s *Server) fetch(ctx context.Context) (has offers, again bool, err error) {
	x := &exchange{}
	ctx = observed(ctx, x)
	live, err := s.session(ctx)
	if err != nil {
		return has, false, err
	}
	if c := live.InitializeResult().Capabilities; c != nil {
		has.resources = c.Resources != nil
	}
	params, seen := &mcp.ListToolsParams{}, map[string]bool{}
	for {
		page, err := live.ListTools(ctx, params)
		if err != nil {
			ended := s.ended(ctx, err) || x.outcome().unknownSession
			if ended {
				s.drop(live)
			}
			return has, ended, s.unreachable(ctx, err, x.outcome())
		}
		has.tools = append(has.tools, page.Tools...)
		switch next := page.NextCursor; {
		case next == "" && len(has.tools) <= maxTools:
			return has, false, nil
		case seen[next]:
			return has, false, s.config.badList("does not end its list of tools: nextCursor is %q again after %d tools", next, len(has.tools))
		case len(has.tools) > maxTools:
			return has, false, s.config.badList("has more than %d tools", maxTools)
		case len(seen) == maxTools:
			return has, false, s.config.badList("does not end its list of tools: it has nextCursor after %d pages with %d tools", maxTools, len(has.tools))
		default:
			seen[next] = true
			params = &mcp.ListToolsParams{Cursor: next}
		}
	}
}

// badList returns the error of a server whose list of tools cannot be used.
func (c *Config) badList(format string, args ...any) error {
	return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, "the MCP server of tool %q "+format+"; ask its operator", append([]any{c.Name}, args...)...)
}

// missing returns an error for an allowed tool that the server does not have.
func (c *Config) missing(tools []*mcp.Tool) error {
	for _, name := range c.Allow {
		if name != "*" && !slices.ContainsFunc(tools, func(t *mcp.Tool) bool { return t.Name == name }) {
			var names []string
			for _, t := range tools {
				names = append(names, t.Name)
			}
			return fmt.Errorf("tool %q allows %q, which its MCP server does not have; correct allow: the server has %s", c.Name, name, cmp.Or(strings.Join(names, ", "), "no tools"))
		}
	}
	return nil
}

// spec returns the description of a tool for models.
func (c *Config) spec(t *mcp.Tool) agent.ToolSpec {
	spec := agent.ToolSpec{Name: agent.ToolName(c.Prefix + t.Name), Description: t.Description, Effect: c.effect(t)}
	if schema, err := exactJSON(t.InputSchema); err == nil {
		spec.Parameters = agent.ToolParameters(json.RawMessage(schema))
	}
	if spec.Description == "" {
		spec.Description = t.Title
	}
	return spec
}

// effect returns whether a call of the tool has effects and can be repeated. The configuration
// takes precedence over the annotations of the server.
func (c *Config) effect(t *mcp.Tool) agent.Effect {
	if e, ok := c.Effects[t.Name]; ok {
		return e
	}
	if e, ok := c.Effects["*"]; ok {
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

// params returns the parameters of a call.
func (t *tool) params(ctx context.Context, arguments json.RawMessage, key string) (*mcp.CallToolParams, error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(arguments, &object) != nil || object == nil {
		e := agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "the arguments must be a JSON object")
		e.Fresh = true
		return nil, e
	}
	return &mcp.CallToolParams{Meta: meta(ctx, key), Name: t.name, Arguments: arguments}, nil
}

// meta returns what goes along with a request. The trace context has no other place in requests to a program.
func meta(ctx context.Context, key string) mcp.Meta {
	m := mcp.Meta{KeyMeta: key}
	if value := traceparent.Of(ctx); value != "" {
		m[traceparent.Key] = value
	}
	return m
}

// call makes the call. The questions of the server are those of o; nil if it may not ask any.
func (t *tool) call(ctx context.Context, params *mcp.CallToolParams, o *openCall) (r *mcp.CallToolResult, err error) {
	err = t.server.send(ctx, t.spec.Name, o, func(ctx context.Context, live *mcp.ClientSession, token string) error {
		sending := *params // the library adds to the parameters
		sending.Meta = maps.Clone(sending.Meta)
		sending.SetProgressToken(token)
		r, err = live.CallTool(ctx, &sending)
		return err
	})
	return r, err
}

// request sends one request, with a token for its progress.
type request func(ctx context.Context, live *mcp.ClientSession, token string) error

// send sends a request of a tool, again if the connection or the session had ended before it. The questions of the
// server are those of o; nil if it may not ask any.
func (s *Server) send(ctx context.Context, tool string, o *openCall, do request) error {
	sent, err := s.sendOnce(ctx, tool, o, do)
	if err != nil && !sent {
		_, err = s.sendOnce(ctx, tool, o, do)
	}
	return err
}

// sendOnce sends the request once. sent reports whether the server may have received it.
func (s *Server) sendOnce(ctx context.Context, tool string, o *openCall, do request) (sent bool, err error) {
	connecting := &exchange{}
	live, release, err := s.acquire(observed(ctx, connecting), o)
	if err != nil {
		return true, s.unreachable(ctx, err, connecting.outcome())
	}
	answered := false
	defer func() { release(answered) }()
	ctx, token, done := s.progress.begin(ctx)
	defer done()
	x := &exchange{}
	err = do(observed(ctx, x), live, token)
	var refused *jsonrpc.Error
	answered = err == nil || ctx.Err() == nil && x.outcome() == (outcome{}) && errors.As(err, &refused)
	if err == nil {
		return true, nil
	}
	seen := x.outcome()
	if s.ended(ctx, err) || seen.unknownSession {
		s.drop(live)
	}
	unsent := seen.unknownSession || seen == (outcome{}) && s.config.URL != "" && s.ended(ctx, err)
	return ctx.Err() != nil || seen.resumed || !unsent, s.failure(ctx, tool, err, seen)
}
