package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/mcp"
)

// addResources adds resources of all kinds.
func addResources(s *sdk.Server) {
	add := func(uri string, of func(context.Context, *sdk.ReadResourceRequest) ([]*sdk.ResourceContents, error)) {
		s.AddResource(&sdk.Resource{URI: uri, Name: uri}, func(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			contents, err := of(ctx, r)
			return &sdk.ReadResourceResult{Contents: contents}, err
		})
	}
	has := func(uri string, contents ...*sdk.ResourceContents) {
		add(uri, func(context.Context, *sdk.ReadResourceRequest) ([]*sdk.ResourceContents, error) { return contents, nil })
	}
	has("test://a", &sdk.ResourceContents{URI: "test://a", MIMEType: "text/plain", Text: "one"}, &sdk.ResourceContents{URI: "test://b", MIMEType: "text/csv", Blob: []byte("two,2")})
	has("https://web.invalid/c.gif", &sdk.ResourceContents{URI: "https://web.invalid/c.gif", MIMEType: "image/gif", Blob: []byte("1234")})
	has("test://long", &sdk.ResourceContents{URI: "test://long", Text: strings.Repeat("ü", 200<<10)})
	has("test://large", &sdk.ResourceContents{URI: "test://large", MIMEType: "image/gif", Blob: make([]byte, 9<<20)})
	has("test://empty", &sdk.ResourceContents{URI: "test://empty", MIMEType: "text/plain"})
	met := make(chan struct{})
	add("test://meet", func(ctx context.Context, _ *sdk.ReadResourceRequest) ([]*sdk.ResourceContents, error) { // waits for another read
		select {
		case met <- struct{}{}:
		case <-met:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return []*sdk.ResourceContents{{URI: "test://meet", Text: "met"}}, nil
	})
	add("test://asks", func(ctx context.Context, r *sdk.ReadResourceRequest) ([]*sdk.ResourceContents, error) {
		_, err := r.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Which?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)})
		return nil, fmt.Errorf("asking: %w", err)
	})
}

// TestResources: agents read the resources of a server, which only the server is asked for.
func TestResources(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"resources", "old resources"} {
		s := start(t, program(which))
		read := find(t, s, "web_read_resource")
		if read.Spec().Effect != agent.EffectSafe || len(read.Spec().Parameters) == 0 {
			t.Errorf("%+v", read.Spec())
		}
		for uri, want := range map[string]string{
			"test://a":                  "one\ntwo,2",
			"https://web.invalid/c.gif": "[resource https://web.invalid/c.gif of type image/gif, 4 bytes]",
			"test://large":              "[resource test://large of type image/gif, 9437184 bytes, left out: the files of a result may have 8388608 bytes together]",
			"test://empty":              "[the resource is empty]",
			"test://long":               strings.Repeat("ü", 128<<10) + "\n[cut: 147456 more bytes]",
		} {
			r, err := read.Call(t.Context(), json.RawMessage(`{"uri":"`+uri+`"}`), "k")
			if err != nil || r.GetText() != want || r.GetIsError() {
				t.Errorf("%s of %s: %.300v %v", uri, which, r, err)
			}
			if files := r.GetFiles(); strings.HasPrefix(uri, "https:") && (len(files) != 1 || files[0].GetFilename() != "c.gif" || string(files[0].GetRaw()) != "1234") {
				t.Errorf("files %v", files)
			}
		}
		for arguments, want := range map[string]string{
			`{"uri":"test://none"}`: "the server refused the call: Resource not found",
			`{}`:                    "the uri of a resource",
			`{"uri":5}`:             "the uri of a resource",
			`{"uri":"` + strings.Repeat("x", 9000) + `"}`: "of at most 8192 bytes",
		} {
			_, err := read.Call(t.Context(), json.RawMessage(arguments), "k")
			if e := agent.AsError(err); err == nil || e.Retry || !e.Fresh || !strings.Contains(e.Message, want) {
				t.Errorf("%.100s: %v", arguments, err)
			}
		}
	}
}

// TestResourcesThatAsk: a server cannot ask people about a resource, nor in place of a call of a tool.
func TestResourcesThatAsk(t *testing.T) {
	t.Parallel()
	c := program("old resources")
	c.Elicit = &mcp.Elicit{}
	_, err := find(t, start(t, c), "web_read_resource").Call(t.Context(), json.RawMessage(`{"uri":"test://asks"}`), "k")
	if err == nil || !strings.Contains(err.Error(), "questions are only answered during a call of a tool") {
		t.Error(err)
	}
}

// TestResourcesAtOnce: reads do not wait for each other at a server that may not ask people.
func TestResourcesAtOnce(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	read := find(t, start(t, program("old resources")), "web_read_resource")
	var both errgroup.Group
	for range 2 {
		both.Go(func() error {
			_, err := read.Call(ctx, json.RawMessage(`{"uri":"test://meet"}`), "k")
			return err
		})
	}
	if err := both.Wait(); err != nil {
		t.Error(err)
	}
}

// TestResourcesAreOffered: the tool that reads resources has a name of its own, and is offered where it is wanted.
func TestResourcesAreOffered(t *testing.T) {
	t.Parallel()
	no, yes := false, true
	for _, tt := range []struct {
		of        string
		prefix    string
		allow     []string
		resources *bool
		want      string // the name; "" if it is not offered
	}{
		{"plain", "", nil, &yes, ""},
		{"resources", "", nil, &no, ""},
		{"resources", "", []string{"echo"}, nil, ""},
		{"resources", "", []string{"echo"}, &yes, "web_read_resource"},
		{"resources", "net_", nil, nil, "net_read_resource"},
		{"resources taken", "", nil, nil, "web_read_resource_"},
	} {
		c := program(tt.of)
		c.Prefix, c.Allow, c.Resources = tt.prefix, tt.allow, tt.resources
		got := ""
		for _, tool := range start(t, c).Known() {
			if strings.HasPrefix(tool.Spec().Description, "Reads a resource") {
				got += tool.Spec().Name
			}
		}
		if got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

// TestStructuredResults: models get the text of a result, or its structured content, or both; and how to read what it
// links to.
func TestStructuredResults(t *testing.T) {
	t.Parallel()
	const data, link = `{"n":1,"of":"<a> & b"}`, "[resource a at test://a, of type text/plain: More.; read it with web_read_resource]"
	for _, tt := range []struct {
		results   mcp.Results
		arguments string
		want      string
	}{
		{mcp.ResultsText, `{"text":"short"}`, "short\n" + link},
		{mcp.ResultsText, `{"text":" \n"}`, data + "\n" + link},
		{mcp.ResultsStructured, `{"text":"short"}`, data + "\n" + link},
		{mcp.ResultsStructured, `{"text":"wrong","fails":true}`, "wrong\n" + link},
		{mcp.ResultsStructured, `{"text":"","fails":true}`, data + "\n" + link},
		{mcp.ResultsBoth, `{"text":"short"}`, "short\n" + link + "\n" + data},
		{mcp.ResultsBoth, `{"text":"{\"of\": \"<a> & b\", \"n\": 1}"}`, `{"of": "<a> & b", "n": 1}` + "\n" + link},
		{mcp.ResultsBoth, `{"text":""}`, data + "\n" + link},
	} {
		c := program("resources")
		c.Results = tt.results
		r, err := find(t, start(t, c), "summary").Call(t.Context(), json.RawMessage(tt.arguments), "k")
		if err != nil || r.GetText() != tt.want {
			t.Errorf("%+v: %v %v", tt, r, err)
		}
	}
}
