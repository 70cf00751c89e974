package call

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// piece is an update of an artifact; "+" before its text adds to what there is.
func piece(id, text string) *a2av1.StreamResponse {
	text, more := strings.CutPrefix(text, "+")
	return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_ArtifactUpdate{ArtifactUpdate: &a2av1.TaskArtifactUpdateEvent{
		Artifact: &a2av1.Artifact{ArtifactId: id, Parts: agent.TextParts(text)}, Append: more,
	}}}
}

// What was streamed is printed once, also where it comes again as a whole.
func TestStreamed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		pieces []*a2av1.StreamResponse
		want   string
	}{
		{"in pieces", []*a2av1.StreamResponse{piece("a", "high"), piece("a", "+ tide")}, "high tide\n"},
		{"and again as a whole", []*a2av1.StreamResponse{piece("a", "high"), piece("a", "+ tide"), piece("a", "high tide")}, "high tide\n"},
		{"and as more than that", []*a2av1.StreamResponse{piece("a", "high"), piece("a", "high tide")}, "high tide\n"},
		{"in other words", []*a2av1.StreamResponse{piece("a", "high"), piece("a", "low tide")}, "high\nlow tide\n"},
		{"two artifacts", []*a2av1.StreamResponse{piece("a", "high"), piece("b", "low"), piece("a", "+ tide")}, "high\nlow\n tide\n"},
		{"nothing", []*a2av1.StreamResponse{piece("a", "")}, ""},
		{"a task that has it", []*a2av1.StreamResponse{
			{Payload: &a2av1.StreamResponse_Task{Task: &a2av1.Task{Id: "t", Artifacts: []*a2av1.Artifact{{ArtifactId: "a", Parts: agent.TextParts("high")}}}}},
			piece("a", "+ tide"),
		}, "high tide\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			p := &streamPrinter{out: &out}
			for _, r := range tt.pieces {
				p.show(r)
			}
			p.end()
			if out.String() != tt.want {
				t.Errorf("printed is %q, want %q", &out, tt.want)
			}
		})
	}
}

func TestContent(t *testing.T) {
	data, err := structpb.NewValue([]any{"a", 1.0})
	if err != nil {
		t.Fatal(err)
	}
	parts := []*a2av1.Part{
		{Content: &a2av1.Part_Text{Text: "text"}},
		{Content: &a2av1.Part_Text{Text: ""}},
		{Content: &a2av1.Part_Raw{Raw: []byte("123")}, Filename: "n.txt", MediaType: "text/plain"},
		{Content: &a2av1.Part_Raw{}},
		{Content: &a2av1.Part_Url{Url: "https://e/x"}, MediaType: "image/png"},
		{Content: &a2av1.Part_Data{Data: data}},
	}
	got := strings.Split(strings.ReplaceAll(content(parts), ", ", ","), "\n")
	want := []string{"text", "[file n.txt text/plain 3 bytes]", "[file 0 bytes]", "[file image/png https://e/x]", `["a",1]`}
	if !slices.Equal(got, want) {
		t.Errorf("content is %q, want %q", got, want)
	}
}

// The command that follows a task calls it as it was called.
func TestAgain(t *testing.T) {
	f := &Flags{Binding: "rest", Protocol: "0.3", Tenant: "desk", Headers: []string{"Authorization=secret"}}
	if got, want := f.resumeCommand("http://h/desk", "t1", 7), "team-server call subscribe --binding rest --protocol 0.3 --tenant desk --after 7 http://h/desk t1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := (&Flags{}).resumeCommand("http://h", "t1", 0), "team-server call subscribe http://h t1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
