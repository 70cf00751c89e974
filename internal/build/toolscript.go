package build

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/mcp"
	"github.com/agentteams/team-server/pkg/secret"
)

// playTools connects a tool to an MCP server in this process that answers from a script. What the configuration says
// about the tools, such as prefix, allow and approve, applies as to the real ones.
func playTools(c *mcp.Config, s *teamv1.ToolScript) {
	p := &toolScript{calls: s.GetCalls(), taken: make([]bool, len(s.GetCalls()))}
	server := sdk.NewServer(&sdk.Implementation{Name: "script", Version: "1"}, nil)
	for _, name := range toolNames(s) {
		f := s.GetFunctions()[name]
		var schema any = map[string]any{"type": "object"}
		if f.GetParameters() != nil {
			schema = f.GetParameters().AsMap()
		}
		server.AddTool(&sdk.Tool{Name: name, Description: f.GetDescription(), InputSchema: schema}, p.call)
	}
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	c.Command, c.Env, c.Bearer, c.Tokens, c.Headers = nil, nil, secret.Secret{}, nil, nil
	c.URL, c.HTTPClient = "http://script.invalid/mcp", &http.Client{Transport: inProcess{handler}}
}

// toolNames returns the names of the tools of a script.
func toolNames(s *teamv1.ToolScript) []string {
	var names []string
	for name := range s.GetFunctions() {
		names = append(names, name)
	}
	for _, c := range s.GetCalls() {
		names = append(names, c.GetName())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// toolScript answers calls from a script. It is safe for concurrent use.
type toolScript struct {
	calls []*teamv1.ToolScriptCall

	mu    sync.Mutex
	taken []bool // the results that a call has got; guarded by mu
}

// call answers a call with the first result that matches and that no other call has got, else with the last one that
// matches.
func (p *toolScript) call(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	var arguments map[string]any
	_ = json.Unmarshal(req.Params.Arguments, &arguments) // the client sends an object
	p.mu.Lock()
	last := -1
	for i, c := range p.calls {
		if c.GetName() != req.Params.Name || c.Arguments != nil && !equalArguments(c.GetArguments(), arguments) {
			continue
		}
		if last = i; !p.taken[i] {
			break
		}
	}
	if last >= 0 {
		p.taken[last] = true
	}
	p.mu.Unlock()
	if last < 0 {
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{
			Text: "the test has no result of " + req.Params.Name + " for the arguments " + string(req.Params.Arguments) + "; add one under calls of this tool",
		}}}, nil
	}
	return toolResult(p.calls[last]), nil
}

// equalArguments reports whether two objects are equal as JSON.
func equalArguments(want *structpb.Struct, got map[string]any) bool {
	if got == nil {
		got = map[string]any{}
	}
	return reflect.DeepEqual(want.AsMap(), got)
}

// toolResult returns the result of a call.
func toolResult(c *teamv1.ToolScriptCall) *sdk.CallToolResult {
	r := &sdk.CallToolResult{IsError: c.GetError()}
	if c.GetText() != "" || len(c.GetFiles()) == 0 {
		r.Content = append(r.Content, &sdk.TextContent{Text: c.GetText()})
	}
	for _, file := range c.GetFiles() {
		part := &a2av1.Part{}
		data, err := file.MarshalJSON()
		if err != nil || protojson.Unmarshal(data, part) != nil { // checked when the test was read
			continue
		}
		r.Content = append(r.Content, &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{
			URI: "file:///" + part.GetFilename(), MIMEType: part.GetMediaType(), Blob: part.GetRaw(),
		}})
	}
	return r
}

// inProcess makes requests to a handler in this process, without a network.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	defer r.Body.Close() //nolint:errcheck // it was read
	w := &answer{header: http.Header{}, status: http.StatusOK}
	p.handler.ServeHTTP(w, r)
	return &http.Response{
		StatusCode: w.status, Status: http.StatusText(w.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// answer is a response that is kept in memory.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answer) Write(data []byte) (int, error) { return a.body.Write(data) }
