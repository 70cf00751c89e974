package openai_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/modeltest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model/openai"
)

func rawFile(name, media, data string) *a2av1.Part {
	return &a2av1.Part{Content: &a2av1.Part_Raw{Raw: []byte(data)}, Filename: name, MediaType: media}
}

// TestFiles sends each kind of file, between texts, and files of the results of tools.
func TestFiles(t *testing.T) {
	llm := fakellm.New(t)
	llm.Script("m", fakellm.Turn{Text: "ok"})
	m := connect(t, openai.Config{BaseURL: llm.URL, Name: "m", HTTPClient: modeltest.Client(t), Accepts: []string{"*/*"}})
	text := func(s string) *a2av1.Part { return agent.TextParts(s)[0] }
	req := &agent.ModelRequest{
		Agent: "a", Instructions: "Be brief.",
		Messages: []agent.ModelMessage{
			{Role: agent.RoleUser, Text: "unused", Parts: []*a2av1.Part{
				text("first"), rawFile("", "image/webp", "i"), text("second"), rawFile("", "application/pdf", "p"), rawFile("", "audio/wav", "w"), rawFile("", "audio/mpeg", "m"),
				{Content: &a2av1.Part_Url{Url: "https://x.example/i"}, MediaType: "image/png"},
			}},
			{Role: agent.RoleAssistant, ToolCalls: []*teamv1.ToolCall{{Id: "c1", Name: "look", Arguments: "{}"}, {Id: "c2", Name: "hear", Arguments: "{}"}}},
			{Role: agent.RoleTool, CallID: "c1", Tool: "look", Text: "seen", Parts: []*a2av1.Part{text("seen"), rawFile("", "image/png", "s")}},
			{Role: agent.RoleTool, CallID: "c2", Tool: "hear", Text: "heard"},
			{Role: agent.RoleUser, Text: "And?"},
		},
		Tools: []agent.ToolSpec{{Name: "look"}, {Name: "hear"}},
	}
	if a := modeltest.Collect(t.Context(), t, m, req); a.Err != nil {
		t.Fatal(a.Err)
	}
	r := llm.Requests()[0]
	want := []fakellm.Message{
		{Role: "user", Text: "firstsecond", Files: []fakellm.File{
			{Type: "image/webp", Data: []byte("i")}, {Type: "application/pdf", Data: []byte("p"), Name: "document.pdf"},
			{Type: "audio/wav", Data: []byte("w")}, {Type: "audio/mp3", Data: []byte("m")}, {URL: "https://x.example/i"},
		}},
		{Role: "assistant", Calls: []fakellm.Call{{ID: "c1", Name: "look", Arguments: "{}"}, {ID: "c2", Name: "hear", Arguments: "{}"}}},
		{Role: "tool", Text: "seen", ToolCallID: "c1"},
		{Role: "tool", Text: "heard", ToolCallID: "c2"},
		{Role: "user", Text: "The files of the result of look:And?", Files: []fakellm.File{{Type: "image/png", Data: []byte("s")}}},
	}
	if diff := cmp.Diff(want, r.Messages); diff != "" {
		t.Errorf("messages:\n%s", diff)
	}
	if r.System != "Be brief." || !r.Stream || !r.IncludeUsage || len(r.Tools) != 2 {
		t.Errorf("request %+v", r)
	}
}

// TestFilesTaken has what models take by default, and what a configuration says.
func TestFilesTaken(t *testing.T) {
	text := agent.TextFiles
	with := func(more ...string) []string { return append(append([]string{}, text...), more...) }
	for _, c := range []struct {
		base        string
		accepts     []string
		types, urls []string
	}{
		{"", nil, with("image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf"), []string{"image/jpeg", "image/png", "image/gif", "image/webp"}},
		{"http://127.0.0.1:1/v1", nil, text, []string{}},
		{"http://127.0.0.1:1/v1", []string{"text/csv", "image/png", "video/*", "audio/*"}, []string{"text/csv", "image/png", "audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3"}, []string{"image/png"}},
	} {
		f := connect(t, openai.Config{BaseURL: c.base, Name: "m", Accepts: c.accepts, ContextWindow: 8000}).Files()
		if diff := cmp.Diff(agent.Files{Types: c.types, URLs: c.urls, ImageTokens: 50_000, Window: 8000}, f); diff != "" {
			t.Errorf("%q %v: %s", c.base, c.accepts, diff)
		}
	}
}
