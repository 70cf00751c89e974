package step

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestMeter(t *testing.T) {
	for _, tt := range []struct {
		name string
		req  agent.ModelRequest
		want int64
	}{
		{"a request", agent.ModelRequest{Instructions: "iii", Force: "ff"}, perRequest + 5},
		{"a tool", agent.ModelRequest{Tools: []agent.ToolSpec{{Name: "n", Description: "dd", Parameters: []byte("{ }")}}}, perRequest + withTools + perTool + 6},
		{"a message", agent.ModelRequest{Messages: []agent.ModelMessage{{Text: "t", CallID: "cc", Tool: "ooo", State: []byte("ssss")}}}, perRequest + perMessage + 10},
		{"a call", agent.ModelRequest{Messages: []agent.ModelMessage{{ToolCalls: []*teamv1.ToolCall{{Id: "i", Name: "nn", Arguments: "{ }"}}}}}, perRequest + 2*perMessage + 6},
	} {
		t.Run("C-07 every byte counts: "+tt.name, func(t *testing.T) {
			if got := new(meter).bound(new(textModel), &tt.req); got != tt.want {
				t.Errorf("%d tokens, want %d", got, tt.want)
			}
		})
	}
	req := &agent.ModelRequest{Instructions: strings.Repeat("i", 300), Messages: []agent.ModelMessage{{Role: agent.RoleUser, Text: strings.Repeat("u", 1000)}}}
	model := &textModel{name: "m"}
	var m meter
	if got := m.bound(model, req); got < 1300 || got > 1400 {
		t.Error(got)
	}
	m.learn(model, req, 320)
	more := *req
	more.Messages = append(slices.Clip(req.Messages), agent.ModelMessage{Role: agent.RoleAssistant, Text: strings.Repeat("a", 100)})
	if got := m.bound(model, &more); got < 420 || got > 450 {
		t.Error("only what is new is bounded by its bytes:", got)
	}
	other := more
	other.Instructions = "x" + more.Instructions[1:]
	if got := m.bound(model, &other); got < 1400 {
		t.Error("another prompt is bounded as a whole:", got)
	}
	without := more
	withTool := *req
	withTool.Tools = []agent.ToolSpec{{Name: "n", Description: strings.Repeat("d", 500)}}
	var final meter
	final.learn(model, &withTool, 470)
	if got := final.bound(model, &without); got < 570 || got > 600 {
		t.Error("without the tools the prompt is no longer than with them:", got)
	}
	if m.learn(model, &more, 0); m.tokens != 320 {
		t.Error("nothing was counted")
	}
}

// textModel is a model with a name.
type textModel struct{ name string }

func (m *textModel) Name() string { return m.name }

func (*textModel) Generate(context.Context, *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return nil
}

// pair is a model that one of two answers for.
type pair struct{ textModel }

func (*pair) Alternatives() [][]string { return [][]string{{"a"}, {"b"}} }

// loose is a model whose values cannot be compared.
type loose struct{ _ []int }

func (loose) Name() string { return "loose" }

func (loose) Generate(context.Context, *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return nil
}

// TestMeter_C_07_CountsOfOthers: a count is only used for the model that has counted, if no other model can
// answer in its place, and for a prompt that begins with the same content.
func TestMeter_C_07_CountsOfOthers(t *testing.T) {
	text := func(s string) *a2av1.Part { return &a2av1.Part{Content: &a2av1.Part_Text{Text: s}} }
	raw := func(s string) *a2av1.Part {
		return &a2av1.Part{Content: &a2av1.Part_Raw{Raw: []byte(s)}, MediaType: "image/png"}
	}
	link := &a2av1.Part{Content: &a2av1.Part_Url{Url: "https://example.com/a.png"}, MediaType: "image/png"}
	said := strings.Repeat("u", 1000)
	ask := func(change func(*agent.ModelMessage)) *agent.ModelRequest {
		msg := agent.ModelMessage{Role: agent.RoleUser, Text: said}
		if change != nil {
			change(&msg)
		}
		return &agent.ModelRequest{Messages: []agent.ModelMessage{msg}, Tools: []agent.ToolSpec{{Name: "n", Parameters: []byte("{}")}}}
	}
	parts := func(list ...*a2av1.Part) func(*agent.ModelMessage) {
		return func(m *agent.ModelMessage) { m.Parts = list }
	}
	call := func(arguments string) func(*agent.ModelMessage) {
		return func(m *agent.ModelMessage) {
			m.ToolCalls = []*teamv1.ToolCall{{Id: "1", Name: "n", Arguments: arguments}}
		}
	}
	state := func(s string) func(*agent.ModelMessage) { return func(m *agent.ModelMessage) { m.State = []byte(s) } }
	one, two := agent.Model(&textModel{name: "m"}), agent.Model(&textModel{name: "m"})
	for name, c := range map[string]struct {
		counts, asks   agent.Model
		counted, asked *agent.ModelRequest
		used           bool
	}{
		"the same":                              {one, one, ask(nil), ask(nil), true},
		"with the same file":                    {one, one, ask(parts(text(said), raw("a"))), ask(parts(text(said), raw("a"))), true},
		"another model with that name":          {one, two, ask(nil), ask(nil), false},
		"a model with alternatives":             {&pair{}, &pair{}, ask(nil), ask(nil), false},
		"models that cannot be compared":        {loose{}, loose{}, ask(nil), ask(nil), false},
		"another file":                          {one, one, ask(parts(text(said), raw("a"))), ask(parts(text(said), raw("b"))), false},
		"a file that was not in it":             {one, one, ask(nil), ask(parts(text(said), raw("a"))), false},
		"without its file":                      {one, one, ask(parts(text(said), raw("a"))), ask(nil), false},
		"a URL, whose content may have changed": {one, one, ask(parts(text(said), link)), ask(parts(text(said), link)), false},
		"a call with other arguments":           {one, one, ask(call("{}")), ask(call("{ }")), false},
		"another state":                         {one, one, ask(state("a")), ask(state("b")), false},
	} {
		t.Run(name, func(t *testing.T) {
			var m meter
			m.learn(c.counts, c.counted, 100)
			if got := m.bound(c.asks, c.asked); (got == 100) != c.used || got != 100 && got < 1000 {
				t.Errorf("%d tokens; the count of 100 is used: %t, want %t", got, got == 100, c.used)
			}
		})
	}
	other := ask(nil)
	other.Tools[0].Parameters = []byte("[]")
	var m meter
	m.learn(one, ask(nil), 100)
	if got := m.bound(one, other); got < 1000 {
		t.Error("a tool with other parameters:", got)
	}
}
