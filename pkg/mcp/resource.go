package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// maxURI is the maximum number of bytes of the URI of a resource.
const maxURI = 8 << 10

// reader is a tool of ours that reads the resources of a server. Only the server is asked for them: no address is ever
// opened here.
type reader struct {
	server *Server
	spec   agent.ToolSpec
}

var _ agent.AskingTool = (*reader)(nil)

// offersResources reports whether the resources of the server may be read.
func (c *Config) offersResources() bool {
	if c.Resources != nil {
		return *c.Resources
	}
	return c.Allow == nil
}

// readerSpec returns the description of the tool that reads resources, with a name that no tool in taken has.
func (c *Config) readerSpec(taken map[string]string) agent.ToolSpec {
	name := agent.ToolName(cmp.Or(c.Prefix, c.Name+"_") + "read_resource")
	for taken[name] != "" {
		name = agent.ToolName(name + "_")
	}
	return agent.ToolSpec{
		Name: name, Effect: agent.EffectSafe,
		Description: fmt.Sprintf("Reads a resource of the MCP server %q by its URI, such as one that the result of another tool of this server names.", c.Name),
		Parameters:  json.RawMessage(`{"type":"object","properties":{"uri":{"type":"string","description":"The URI, exactly as it was given."}},"required":["uri"]}`),
	}
}

// link returns the text for a link to a resource, which says how to read it.
func (s *Server) link(l *mcp.ResourceLink) string {
	text := fmt.Sprintf("[resource %s at %s", cmp.Or(l.Name, l.Title), l.URI)
	if l.MIMEType != "" {
		text += ", of type " + l.MIMEType
	}
	if l.Size != nil {
		text += fmt.Sprintf(", %d bytes", *l.Size)
	}
	if about := strings.TrimSpace(l.Description); about != "" {
		text += ": " + about
	}
	for _, t := range s.Known() {
		if r, ok := t.(*reader); ok {
			text += "; read it with " + r.spec.Name
		}
	}
	return text + "]"
}

// Spec implements agent.Tool.
func (r *reader) Spec() agent.ToolSpec { return r.spec }

// ToolSet returns the name of the MCP server in the configuration, by which the tool can be halted.
func (r *reader) ToolSet() string { return r.server.config.Name }

// Call implements agent.Tool.
func (r *reader) Call(ctx context.Context, arguments json.RawMessage, key string) (*teamv1.ToolResult, error) {
	var args struct {
		URI string `json:"uri"`
	}
	if err := json.Unmarshal(arguments, &args); err != nil || args.URI == "" || len(args.URI) > maxURI {
		e := agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "the arguments must be a JSON object with the uri of a resource, of at most %d bytes", maxURI)
		e.Fresh = true
		return nil, e
	}
	ctx, done, err := r.server.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var has *mcp.ReadResourceResult
	err = r.server.send(ctx, r.spec.Name, r.turn(), func(ctx context.Context, live *mcp.ClientSession, token string) error {
		params := &mcp.ReadResourceParams{Meta: meta(ctx, key), URI: args.URI}
		params.SetProgressToken(token)
		has, err = live.ReadResource(ctx, params)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r.result(has), nil
}

// turn returns what makes a read wait until the server works on no call that may ask people, and such calls wait for it;
// nil if the server may ask nothing. Without it, a question of the server during a read would pass for one of the call
// beside it, because in the versions of MCP in which servers ask while they work a question does not name its request.
// People are not asked about a resource: a question during the turn of a read is refused.
func (r *reader) turn() *openCall {
	if r.server.config.Elicit == nil {
		return nil
	}
	return &openCall{}
}

// CallAsking implements agent.AskingTool, as all tools of a server do. A server cannot ask about a resource.
func (r *reader) CallAsking(ctx context.Context, c agent.ToolCall) (*teamv1.ToolResult, *agent.ToolAsk, error) {
	out, err := r.Call(ctx, c.Arguments, c.Key)
	return out, nil, err
}

// Release implements agent.AskingTool.
func (r *reader) Release(string) {}

// result converts a resource.
func (r *reader) result(has *mcp.ReadResourceResult) *teamv1.ToolResult {
	if has.NeedsInput() {
		return failed("%s needs answers of people to read this, which is not supported for resources", r.spec.Name)
	}
	var contents []mcp.Content
	for _, c := range has.Contents {
		contents = append(contents, &mcp.EmbeddedResource{Resource: c})
	}
	out := r.server.converted(contents)
	if strings.TrimSpace(out.GetText()) == "" {
		out.Text = "[the resource is empty]"
	}
	return out
}
