package tests

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/inputs"
	"github.com/agentteams/team-server/tests/rig"
)

const namedFile = `
models: {a: MODEL(a), b: MODEL(b), c: MODEL(c), lead: MODEL(lead)}
agents:
  a: {model: a, description: d}
  b: {model: b, description: d, instructions: 'Check {{inputs.draft}} for {{ inputs.company }}. {{other}}', inputs: {draft: {type: string}, company: {type: string, default: nobody}}}
  c: {model: c, description: d}
teams:
  report:
    inputs:
      company: {type: string, pattern: '^[A-Z]+$', description: Its short name.}
      year: {type: integer, default: 2025}
    workflow:
      steps:
        - {id: draft, agent: a, task: 'Report on {{inputs.company}} in {{inputs.year}}.', output: draft}
        - {id: check, agent: b, task: Check it., output: {name: verdict}}
        - {id: late, agent: c, when: 'inputs.year > 2000 && outputs.verdict.data.ok', task: 'Print {{outputs.draft}}'}
  outer:
    inputs: {company: {type: string}}
    workflow: {steps: [{agent: report, task: Go on.}]}
  led:
    members: [report]
    coordinator: {model: lead, instructions: Lead.}
  rules:
    inputs: {company: {type: string}}
    members: [{agent: a, output: draft}, {agent: c}]
    supervisor:
      rules:
        - {id: one, when: turn == 1, next: [a], message: 'Write of {{inputs.company}}: {{input}}'}
        - {id: two, when: turn == 2, next: [c], message: 'Print {{outputs.draft}} of {{inputs.company}}'}
        - {id: end, when: outputs.draft.text != '', finish: c}
  circle:
    members: [a, b2]
    loop: {exit_when: b2.data.score >= 8, max_rounds: 3, answer: a}
  rounds:
    members: [a, c]
    loop: {max_rounds: 2}
`

// named serves the file. The models say what they are given, with what stands in their instructions.
func named(t *testing.T, place rig.Place) *stage {
	s := play(t, place, strings.ReplaceAll(strings.ReplaceAll(namedFile, "members: [a, b2]", "members: [a, {agent: c, id: b2}]"), "nobody", "us"))
	s.llm.Answer("a", func(r *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "a[" + r.Last() + "]"} })
	s.llm.Answer("b", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: `{"ok": true}`} })
	s.llm.Answer("c", func(r *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "c[" + r.Last() + "]"} })
	return s
}

// withValues returns a message with values.
func (s *stage) withValues(t *testing.T, tenant, text string, values map[string]any) *a2av1.SendMessageRequest {
	t.Helper()
	req := s.message(tenant, text)
	of, err := structpb.NewStruct(values)
	if err != nil {
		t.Fatal(err)
	}
	req.Message.Parts = append(req.GetMessage().GetParts(), inputs.Part(of.GetFields()))
	return req
}

// result returns the text of the answer.
func result(task *a2av1.Task) string {
	for _, a := range task.GetArtifacts() {
		if a.GetName() == "result" {
			return agent.Text(&a2av1.Message{Parts: a.GetParts()})
		}
	}
	return ""
}

// TestNamedInputs: a message gives values by name to a team, to the agents in it and to the teams below it; the card says
// which, and one that is missing or wrong is refused before a task exists.
func TestNamedInputs(t *testing.T) {
	t.Parallel()
	s := named(t, rig.Memory(t))
	c := s.client(t, true)
	send := func(tenant string, values map[string]any) (*a2av1.Task, error) {
		resp, err := c.Send(t.Context(), s.withValues(t, tenant, "x", values))
		return resp.GetTask(), err
	}
	for _, tt := range []struct {
		values map[string]any
		want   string
	}{
		{nil, `lacks the input "company"; add a data part with {"company": VALUE}; expected: {"description":"Its short name.","pattern":"^[A-Z]+$","type":"string"}`},
		{map[string]any{"company": "acme"}, `has a wrong value for the input "company": it does not fit`},
		{map[string]any{"company": "ACME", "year": "soon"}, `has a wrong value for the input "year"`},
	} {
		if _, err := send("report", tt.values); err == nil || !strings.Contains(fmt.Sprint(err), tt.want) || agent.AsError(err).Code != agent.CodeInvalidArgument && !strings.Contains(err.Error(), "InvalidArgument") {
			t.Errorf("%v: %v", tt.values, err)
		}
	}
	if n := len(s.llm.Requests()); n != 0 {
		t.Errorf("refused messages caused %d calls", n)
	}
	task, err := send("report", map[string]any{"company": "ACME", "year": "2024"}) // a text with a number, as command lines send it
	if err != nil || result(task) != "c[Print a[Report on ACME in 2024.]]" {
		t.Errorf("%q %v", result(task), err)
	}
	for _, r := range s.llm.Requests() {
		if r.Model == "b" && !strings.Contains(r.System, "Check a[Report on ACME in 2024.] for ACME. {{other}}") {
			t.Errorf("the agent reads %v", r.System)
		}
	}
	if task, err := send("outer", map[string]any{"company": "ACME"}); err != nil || result(task) != "c[Print a[Report on ACME in 2025.]]" {
		t.Errorf("a team below: %q %v", result(task), err)
	}
	if task, err := send("outer", map[string]any{"company": "acme"}); err != nil || !strings.Contains(agent.Text(task.GetStatus().GetMessage()), `the message for team "report" has a wrong value for the input "company"`) {
		t.Errorf("a team below refuses: %v %v", task.GetStatus(), err)
	}
	card, _, err := a2aclient.ReadCard(t.Context(), s.HTTP+"/report", a2aclient.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var shown *a2av1.AgentExtension
	for _, e := range card.GetCapabilities().GetExtensions() {
		if e.GetUri() == a2a.InputsURI {
			shown = e
		}
	}
	if shown == nil || !strings.Contains(shown.GetDescription(), "company, year (optional)") || shown.GetParams().GetFields()["properties"].GetStructValue().GetFields()["company"] == nil {
		t.Errorf("the card shows %v", shown)
	}
}

// TestNamedInputsOfALeader: the model that leads a team gives members what they want by name, as arguments of their tools.
func TestNamedInputsOfALeader(t *testing.T) {
	t.Parallel()
	s := named(t, rig.Memory(t))
	s.llm.Script("lead",
		fakellm.Turn{Calls: []fakellm.Call{{ID: "1", Name: "delegate_to_report", Arguments: `{"task": "Do it.", "inputs": {"company": "acme"}}`}}},
		fakellm.Turn{Calls: []fakellm.Call{{ID: "2", Name: "delegate_to_report", Arguments: `{"task": "Do it again.", "inputs": {"company": "ACME"}}`}}},
		fakellm.Turn{Text: "Done."})
	s.ask(t, "led", "x", completedTask)
	var tools, said []string
	for _, r := range s.llm.Requests() {
		if r.Model == "lead" {
			tools, said = append(tools, string(r.Body)), append(said, r.Last())
		}
	}
	if !strings.Contains(tools[0], "company") || !strings.Contains(said[1], `wrong value for the input "company"`) || !strings.HasSuffix(said[2], "c[Print a[Report on ACME in 2025.]]") {
		t.Errorf("tools %v\nsaid %q", tools[0], said)
	}
}

// TestNamedOutputs: rules and messages of a supervisor read results by name.
func TestNamedOutputs(t *testing.T) {
	t.Parallel()
	s := named(t, rig.Memory(t))
	resp, err := s.client(t, true).Send(t.Context(), s.withValues(t, "rules", "now", map[string]any{"company": "ACME"}))
	if got := result(resp.GetTask()); err != nil || !strings.Contains(got, "Print a[") || !strings.Contains(got, "Write of ACME: now") || !strings.HasSuffix(got, "] of ACME]") {
		t.Errorf("%q %v", got, err)
	}
}

// TestLoop: members work in turn until one of them ends the loop, and as often as it may.
func TestLoop(t *testing.T) {
	t.Parallel()
	s := named(t, rig.Memory(t))
	var drafts int
	s.llm.Answer("a", func(*fakellm.Request) fakellm.Turn { drafts++; return fakellm.Turn{Text: "same draft"} })
	s.llm.Answer("c", func(*fakellm.Request) fakellm.Turn {
		return fakellm.Turn{Text: map[bool]string{true: `{"score": 9}`, false: `{"score": 5}`}[drafts == 2]}
	})
	if got := result(s.ask(t, "circle", "x", completedTask)); got != "same draft" || drafts != 2 {
		t.Errorf("%q after %d drafts", got, drafts)
	}
	drafts = 10
	task := s.ask(t, "circle", "y", failedTask)
	if e := runOf(task).GetError(); e.GetReason() != agent.ReasonMaxRounds || !strings.Contains(e.GetMessage(), "b2.data.score >= 8") || drafts != 13 {
		t.Errorf("%v after %d drafts", e, drafts-10)
	}
	s.llm.Answer("c", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "seen"} })
	drafts = 0
	if got := result(s.ask(t, "rounds", "x", completedTask)); got != "seen" || drafts != 2 {
		t.Errorf("%q after %d drafts", got, drafts)
	}
}
