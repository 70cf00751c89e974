package scripted

import (
	"context"
	"testing"

	"github.com/agentteams/team-server/pkg/agent"
)

// TestRecorded: each answer of a recorded script is given once, by all models with the script together, in the order of
// the list as far as conditions match. Texts are literal. An error at the end is given again.
func TestRecorded(t *testing.T) {
	s, err := Parse("r.yaml", []byte(`
recorded: true
agents:
  a:
    - {when: 'input == "x"', text: "x {{input}}", usage: {input: 7, output: 9}}
    - {text: first, files: [{raw: aGVsbG8=, mediaType: text/plain}]}
    - {text: second}
    - {error: {status: 400, message: over}}
`))
	if err != nil {
		t.Fatal(err)
	}
	used := &Used{}
	one, err := New(Config{Script: s, Used: used})
	if err != nil {
		t.Fatal(err)
	}
	two, err := New(Config{Script: s, Used: used})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		model             *Model
		input, want       string
		files, in, output int64
	}{
		{one, "y", "first", 1, 0, 1}, {two, "y", "second", 0, 0, 1}, {two, "x", "x {{input}}", 0, 7, 9}, {one, "x", "over", 0, 0, 0}, {two, "y", "over", 0, 0, 0},
	} {
		got := last(c.model, c.input)
		if got.text != c.want || got.files != c.files || got.in < c.in || got.output != c.output {
			t.Errorf("%d: got %+v, want %+v", i, got, c)
		}
	}
}

// said is the end of a call.
type said struct {
	text              string
	files, in, output int64
}

// last returns the end of a call of a model.
func last(m *Model, input string) (s said) {
	for chunk, err := range m.Generate(context.Background(), &agent.ModelRequest{Agent: "a", Messages: []agent.ModelMessage{{Role: agent.RoleUser, Text: input}}}) {
		if err != nil {
			return said{text: agent.AsError(err).Message}
		}
		if chunk.Turn != nil {
			s = said{chunk.Turn.GetText(), int64(len(chunk.Turn.GetFiles())), chunk.Spent.GetInputTokens(), chunk.Spent.GetOutputTokens()}
		}
	}
	return s
}
