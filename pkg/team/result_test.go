package team_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// megabyte is a text of 1 MiB whose pieces all differ.
func megabyte() string {
	var b strings.Builder
	for i := 0; b.Len() < 1<<20; i++ {
		fmt.Fprintf(&b, "ü%07d ", i)
	}
	return b.String()
}

// readAll is a model that reads a result to its end with the tool, and keeps what
// it has read.
type readAll struct {
	text strings.Builder
	name string
}

// turn reads on from what the last message says, or answers.
func (r *readAll) turn(req *agent.ModelRequest) *teamv1.Turn {
	shown := lastSaid(req)
	i := strings.LastIndex(shown, "\n\n[")
	if i < 0 {
		r.text.WriteString(shown)
		return says("read")
	}
	note := shown[i:]
	if r.name == "" {
		_, after, _ := strings.Cut(note, `result "`)
		r.name, _, _ = strings.Cut(after, `"`)
		shown = shown[:i]
		_, shown, _ = strings.Cut(shown, "\n\nü")
		shown = "ü" + shown
	} else {
		shown = shown[:i]
	}
	r.text.WriteString(shown)
	return calls(tool(prompt.ReadTool, fmt.Sprintf(`{"id":%q,"offset":%d}`, r.name, r.text.Len())))
}

func (r *readAll) turns(n int) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = r.turn
	}
	return list
}

func TestS_64_LargeResult(t *testing.T) {
	big := megabyte()
	writer := func(d *diary) *agent.Func { return d.says("writer", func(string) (string, error) { return big, nil }) }

	t.Run("S-64 C-31 the leader is shown 16 KiB and the result's name, and reads the rest with the tool", func(t *testing.T) {
		var d diary
		var r readAll
		m := leads(t, append([]any{calls(give("writer", "go"))}, r.turns(80)...)...)
		run := watch(t.Context(), ledBy(t, m, registry{"writer": writer(&d)}, func(_ *leader.CoordinatorConfig, c *team.Config) {
			c.Limits.MaxTurns = new(int32(200))
		}), "x")
		if run.err != nil || run.text() != "read" {
			t.Fatal(run.text(), run.err)
		}
		first := lastSaid(m.all()[1])
		if len(first) > agent.MaxResult+300 || r.name != crashRoot+"~2" {
			t.Errorf("it is shown %d bytes of %q", len(first), r.name)
		}
		if r.text.String() != big {
			t.Error("what was read is not the result")
		}
		if slices.Contains(offered(m.all()[0]), prompt.ReadTool) || !slices.Contains(offered(m.all()[1]), prompt.ReadTool) {
			t.Error("the tool is there when there is something to read: ", offered(m.all()[0]), offered(m.all()[1]))
		}
		for i, req := range m.all()[1:] {
			for _, msg := range req.Messages {
				if len(msg.Text) > agent.MaxResult+300 {
					t.Fatalf("request %d has a message of %d bytes", i+1, len(msg.Text))
				}
			}
		}
	})

	t.Run("S-64 the next member has it whole, and its model reads on with the tool", func(t *testing.T) {
		var d diary
		for name, turns := range map[string][]any{
			"in the same turn": {calls(give("writer", "go"), give("critic", "judge it"))},
			"in the next turn": {calls(give("writer", "go")), calls(give("critic", "judge it"))},
		} {
			var r readAll
			own := leads(t, r.turns(80)...)
			if name == "in the next turn" { // then the result stands in the history
				own = leads(t, append([]any{func(req *agent.ModelRequest) *teamv1.Turn {
					i := slices.IndexFunc(req.Messages, func(m agent.ModelMessage) bool { return strings.Contains(m.Text, "read on with") })
					return r.turn(&agent.ModelRequest{Messages: req.Messages[i : i+1]})
				}}, r.turns(80)...)...)
			}
			critic, err := leader.NewAgent(leader.AgentConfig{ID: "critic", Model: own})
			if err != nil {
				t.Fatal(err)
			}
			m := leads(t, append(turns, says("done"))...)
			if _, err := ask(t, ledBy(t, m, registry{"writer": writer(&d), "critic": critic}), "x"); err != nil {
				t.Fatal(err)
			}
			if r.text.String() != big {
				t.Errorf("%s: read %d bytes of %d", name, r.text.Len(), len(big))
			}
		}
	})

	t.Run("S-64 skip_summarization: the client gets it whole", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("writer", "go")))
		tm := ledBy(t, m, registry{"writer": writer(&d)}, member("writer", func(m *team.Member) { m.SkipSummarization = true }))
		if answer, err := ask(t, tm, "x"); err != nil || answer != big {
			t.Error(len(answer), err)
		}
	})

	t.Run("C-31 a result of 16 KiB is shown whole", func(t *testing.T) {
		var d diary
		text := strings.Repeat("x", agent.MaxResult)
		m := leads(t, calls(give("a", "go")), says("done"))
		if _, err := ask(t, ledBy(t, m, registry{"a": d.says("a", func(string) (string, error) { return text, nil })}), "x"); err != nil {
			t.Fatal(err)
		}
		if lastSaid(m.all()[1]) != "a: succeeded\n\n"+text || slices.Contains(offered(m.all()[1]), prompt.ReadTool) {
			t.Error(len(lastSaid(m.all()[1])))
		}
	})
}

func TestReadResult(t *testing.T) {
	text := strings.Repeat("é", agent.MaxResult)
	st := &team.StepState{
		Step: &teamv1.Step{Id: "2", Kind: teamv1.Step_KIND_DELEGATE, Member: "a"}, Done: true, Message: agent.NewMessage(text), Scope: "2",
		Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED,
	}
	lead, err := leader.NewCoordinator(leader.CoordinatorConfig{})
	if err != nil {
		t.Fatal(err)
	}
	read := func(arguments string) *teamv1.ToolResult {
		turn := &team.StepState{Step: &teamv1.Step{Kind: teamv1.Step_KIND_MODEL}, Done: true, Turn: calls(tool(prompt.ReadTool, arguments))}
		call := &team.StepState{Step: &teamv1.Step{Kind: teamv1.Step_KIND_TOOL, Name: prompt.ReadTool}}
		s := &team.State{Root: "root", Input: agent.UserMessage("", "x"), Steps: []*team.StepState{st, turn, call}}
		r, _ := lead.Answer(s, call, team.Look{})
		return r
	}
	for _, tt := range []struct{ name, arguments, want string }{
		{"S-64 from the beginning, cut at a whole character", `{"id":"root~2","offset":0}`, text[:agent.MaxResult]},
		{"S-64 no offset is the beginning", `{"id":"root~2"}`, text[:agent.MaxResult]},
		{"S-64 by the step's number", `{"id":"2","offset":16384}`, text[agent.MaxResult:]},
		{"S-64 within a character: from the next one", `{"id":"root~2","offset":32765}`, "é"},
		{"encoded twice", `"{\"id\":\"2\",\"offset\":32766}"`, "é"},
		{"R-002-6.3 junk", `junk`, "not a JSON object"},
		{"R-002-6.2 no id", `{"offset":0}`, "argument id is missing"},
		{"R-002-6.3 an id that is no text", `{"id":2}`, "argument id must be a string, got a number"},
		{"R-002-6.3 an offset that is no number", `{"id":"2","offset":"x"}`, "offset must be a whole number, got a string"},
		{"R-002-6.3 an offset that is not whole", `{"id":"2","offset":1.5}`, "offset must be a whole number, got a number"},
		{"S-64 within the last character: nothing is left", `{"id":"2","offset":32767}`, ""},
		{"an unknown result", `{"id":"root~9","offset":0}`, `no result "root~9"`},
		{"a result of nobody", `{"id":"","offset":0}`, "argument id is empty"},
		{"a negative offset", `{"id":"2","offset":-1}`, "out of range; the result has 32768 bytes"},
		{"an offset behind the end", `{"id":"2","offset":32768}`, "out of range"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := read(tt.arguments)
			if !r.GetIsError() {
				body, _, _ := strings.Cut(r.GetText(), "\n\n[")
				if diff := cmp.Diff(tt.want, body); diff != "" {
					t.Errorf("%d bytes, want %d", len(body), len(tt.want))
				}
				return
			}
			has(t, r.GetText(), tt.want)
		})
	}
}

func TestUpTo(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"what fits stays whole", "ab€", "ab€"},
		{"C-31 a cut falls between characters", "abc€", "abc"},
		{"C-31 and behind a whole one", "ab€d", "ab€"},
		{"no character begins there", "\x80\x80\x80\x80\x80\x80", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := agent.Excerpt(tt.text, 5); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
