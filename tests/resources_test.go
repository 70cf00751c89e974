package tests

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// archive is an MCP server with a tool that links to a picture.
func archive(t *testing.T, pic []byte) string {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "archive", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "look_up", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.ResourceLink{URI: "file:///cat.png", Name: "a cat", MIMEType: "image/png"}}}, nil
	})
	s.AddResource(&sdk.Resource{URI: "file:///cat.png", Name: "a cat"}, func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, MIMEType: "image/png", Blob: pic}}}, nil
	})
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
	t.Cleanup(func() {
		for session := range s.Sessions() {
			_ = session.Close()
		}
		h.Close()
	})
	return h.URL
}

// TestResourcesOfTools: an agent reads what a result links to, once a person approves that, and it becomes a file.
func TestResourcesOfTools(t *testing.T) {
	t.Parallel()
	pic, llm := picture(t), fakellm.New(t)
	llm.Answer("m", func(r *fakellm.Request) fakellm.Turn {
		switch last := r.Last(); {
		case last == "the cat":
			return fakellm.Turn{Calls: []fakellm.Call{{Name: "look_up", Arguments: "{}"}}}
		case strings.Contains(last, "at file:///cat.png, of type image/png; read it with shelf_read_resource]"):
			return fakellm.Turn{Calls: []fakellm.Call{{Name: "shelf_read_resource", Arguments: `{"uri":"file:///cat.png"}`}}}
		default:
			return fakellm.Turn{Text: "seen: " + last}
		}
	})
	target, _ := fromFile(t, rig.Memory(t), `version: v1
models: {m: {provider: openai, name: m, base_url: "${LLM}"}}
tools: {shelf: {mcp: {url: "${SHELF}"}, approve: {tools: ["*read_resource"]}}}
agents: {clerk: {description: Reads., model: m, tools: [shelf]}}
`, map[string]string{"LLM": llm.URL, "SHELF": archive(t, pic)}, llm)
	c := rig.NewREST(target)
	resp, err := c.Send(t.Context(), rig.Text("clerk", rand.Text(), "the cat"))
	if err != nil || !strings.Contains(fmt.Sprint(resp.GetTask().GetStatus().GetMessage()), "wants to call the tool shelf_read_resource") {
		t.Fatal(resp, err)
	}
	resp, err = c.Send(t.Context(), inAnswerTo(resp.GetTask(), rand.Text(), "approve"))
	if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Fatal(resp, err)
	}
	said, files := "", 0
	for _, a := range resp.GetTask().GetArtifacts() {
		for _, p := range a.GetParts() {
			said += p.GetText()
			if string(p.GetRaw()) == string(pic) && p.GetFilename() == "cat.png" {
				files++
			}
		}
	}
	if files != 1 || !strings.Contains(said, "[resource file:///cat.png of type image/png") {
		t.Error(said, files)
	}
}
