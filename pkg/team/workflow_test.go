package team_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

func flow(t *testing.T, steps ...workflow.Step) *workflow.Workflow {
	t.Helper()
	w, err := workflow.New(workflow.Config{Steps: steps})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// sim is a run of a workflow without a loop: the least fold that is true to it.
type sim struct {
	t      *testing.T
	w      *workflow.Workflow
	s      *team.State
	last   team.Decision
	reply  *a2av1.Message
	err    error
	waited bool
}

func simulate(t *testing.T, w *workflow.Workflow) *sim {
	m := &sim{t: t, w: w, s: stateOf([]string{"writer"})}
	m.decide()
	return m
}

// decide asks until the workflow waits or ends the run.
func (m *sim) decide() {
	for range 100 {
		d, err := decide(m.t, m.w, m.s)
		m.last, m.reply, m.err = d, d.Reply, err
		m.waited = len(d.Steps)+len(d.Cancel) == 0
		if err != nil || d.Reply != nil || m.waited {
			return
		}
		for _, id := range d.Cancel {
			m.drop(id)
		}
		dispatches := false
		for _, step := range d.Steps {
			step.Id = strconv.Itoa(len(m.s.Steps) + 1)
			st := &team.StepState{Step: step, Round: m.s.Rounds}
			if r := step.GetRefusal(); r != nil {
				st.Done, st.Outcome, st.Err = true, r.GetOutcome(), agent.FromProto(r.GetError())
			} else {
				dispatches = true
			}
			m.s.Steps = append(m.s.Steps, st)
		}
		if dispatches {
			m.s.Rounds++
		}
	}
	m.t.Fatal("it decides for ever")
}

// drop marks a step that a decision cancels.
func (m *sim) drop(id string) {
	for _, st := range m.s.Steps {
		if st.Step.GetId() == id {
			if st.Done || st.Dropped {
				m.t.Fatalf("step %q is canceled and cannot be", st.Step.GetName())
			}
			st.Dropped = true
		}
	}
}

// open are the names of the steps that run.
func (m *sim) open() []string {
	var names []string
	for _, st := range m.s.Open() {
		names = append(names, st.Step.GetName())
	}
	return names
}

// dropped are the names of the open steps that were canceled.
func (m *sim) dropped() string {
	var names []string
	for _, st := range m.s.Open() {
		if st.Dropped {
			names = append(names, st.Step.GetName())
		}
	}
	return strings.Join(names, " ")
}

// ran are the steps that were not skipped, in the order they were decided.
func (m *sim) ran() string {
	var names []string
	for _, st := range m.s.Steps {
		if st.Step.GetRefusal() == nil {
			names = append(names, st.Step.GetName())
		}
	}
	return strings.Join(names, " ")
}

func (m *sim) step(name string) *team.StepState {
	for i := len(m.s.Steps) - 1; i >= 0; i-- {
		if m.s.Steps[i].Step.GetName() == name {
			return m.s.Steps[i]
		}
	}
	m.t.Fatalf("step %q was not decided", name)
	return nil
}

// input is what a step was given, as text.
func (m *sim) input(name string) string {
	return agent.Text(m.step(name).Step.GetInput().GetMessage())
}

// end ends an open step with a text and decides on.
func (m *sim) end(name, text string) {
	m.t.Helper()
	st := m.step(name)
	if st.Done {
		m.t.Fatalf("step %q has ended", name)
	}
	st.Done, st.Outcome, st.Message = true, teamv1.Outcome_OUTCOME_SUCCEEDED, agent.NewMessage(text)
	if st.Dropped {
		st.Outcome, st.Message, st.Err = teamv1.Outcome_OUTCOME_CANCELED, nil, agent.AsError(agent.ErrCanceled)
	}
	m.decide()
}

func (m *sim) fail(name string, e *agent.Error) {
	st := m.step(name)
	st.Done, st.Outcome, st.Err = true, teamv1.Outcome_OUTCOME_FAILED, e
	m.decide()
}

func (m *sim) wants(open ...string) {
	m.t.Helper()
	if diff := cmp.Diff(open, m.open()); diff != "" {
		m.t.Fatalf("open steps: %s", diff)
	}
}

func TestWorkflow_Order(t *testing.T) {
	t.Run("R-000-32 S-18 sequential: each gets the previous result, the last is the answer", func(t *testing.T) {
		m := simulate(t, flow(t,
			workflow.Step{ID: "a", Member: "writer"}, workflow.Step{ID: "b", Member: "writer", After: []string{"a"}},
			workflow.Step{ID: "c", Member: "writer", After: []string{"b"}}, workflow.Step{ID: "d", Member: "writer", After: []string{"c"}},
		))
		given := "Write about tides"
		for _, id := range []string{"a", "b", "c", "d"} {
			m.wants(id)
			if st := m.step(id).Step; st.GetKind() != teamv1.Step_KIND_STEP || !st.GetAsync() || st.GetMember() != "writer" || m.input(id) != given {
				t.Errorf("%s: %v", id, st)
			}
			given = "by " + id
			m.end(id, given)
		}
		if m.err != nil || agent.Text(m.reply) != "by d" || m.reply != m.step("d").Message {
			t.Errorf("%v, %v", m.reply, m.err)
		}
	})

	t.Run("S-18 parallel: all at once, joined in step order (C-16)", func(t *testing.T) {
		m := simulate(t, flow(t,
			workflow.Step{ID: "a", Member: "researcher"}, workflow.Step{ID: "b", Member: "critic"}, workflow.Step{ID: "c", Member: "writer"},
		))
		m.wants("a", "b", "c")
		m.end("c", "3")
		m.end("a", "1")
		m.end("b", "2")
		if want := "## researcher\n\n1\n\n## critic\n\n2\n\n## writer\n\n3"; agent.Text(m.reply) != want {
			t.Errorf("%q", agent.Text(m.reply))
		}
	})

	t.Run("S-18 C-02 hybrid: a, then b and c, then d", func(t *testing.T) {
		m := simulate(t, flow(t,
			workflow.Step{ID: "a", Member: "writer"},
			workflow.Step{ID: "middle", After: []string{"a"}, Parallel: []workflow.Step{{ID: "b", Member: "critic"}, {ID: "c", Member: "legal"}}},
			workflow.Step{ID: "d", Member: "writer", After: []string{"middle"}},
		))
		m.wants("a")
		m.end("a", "draft")
		m.wants("b", "c")
		if m.step("b").Step.GetInput().GetMessage() != m.step("a").Message {
			t.Error("a copy of a's result: it would be recorded twice")
		}
		m.end("c", "legal says")
		m.wants("b")
		m.end("b", "critic says")
		m.wants("d")
		if want := "## critic\n\ncritic says\n\n## legal\n\nlegal says"; m.input("d") != want {
			t.Errorf("%q", m.input("d"))
		}
		m.end("d", "final")
		if agent.Text(m.reply) != "final" {
			t.Errorf("%v, %v", m.reply, m.err)
		}
	})

	t.Run("a step starts when those before it have ended, whatever else runs", func(t *testing.T) {
		m := simulate(t, flow(t,
			workflow.Step{ID: "a", Member: "writer"}, workflow.Step{ID: "slow", Member: "critic"}, workflow.Step{ID: "b", Member: "writer", After: []string{"a"}},
		))
		m.end("a", "1")
		m.wants("slow", "b")
	})

	t.Run("C-11 no enabled member", func(t *testing.T) {
		s := stateOf([]string{"writer"})
		s.Team.Members[0].Disabled = true
		if _, err := decide(t, flow(t, workflow.Step{ID: "a", Member: "writer"}), s); err == nil {
			t.Error("it starts")
		}
	})
}

func TestWorkflow_Tasks(t *testing.T) {
	m := simulate(t, flow(t,
		workflow.Step{ID: "a", Member: "writer", Task: "Draft: {{input}}", Timeout: 30 * time.Second},
		workflow.Step{ID: "b", Member: "writer", After: []string{"a"}, Task: "Fix {{steps.a.text}} in a {{context.tone}} tone"},
	))
	if m.input("a") != "Draft: Write about tides" || m.step("a").Step.GetTimeout().AsDuration() != 30*time.Second {
		t.Errorf("%v", m.step("a").Step)
	}
	m.s.Context = map[string]*structpb.Value{"tone": structpb.NewStringValue("dry")}
	m.end("a", "a {{input}} draft")
	if want := "Fix a {{input}} draft in a dry tone"; m.input("b") != want {
		t.Errorf("%q", m.input("b"))
	}
}

// TestWorkflow_LongTasks: a step whose task would become too long with what is inserted ends the run with an error that
// names the step.
func TestWorkflow_LongTasks(t *testing.T) {
	long := strings.Repeat("{{input}}", 400_000)
	for what, step := range map[string]workflow.Step{
		"task": {ID: "a", Member: "writer", Task: long}, "question": {ID: "a", Human: &workflow.Human{Question: long}},
	} {
		_, err := flow(t, step).Next(simulate(t, flow(t, workflow.Step{ID: "z", Member: "writer"})).s)
		if want := fmt.Sprintf("the %s of step \"a\" would have", what); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestWorkflow_When(t *testing.T) {
	example := func(t *testing.T) *sim {
		m := simulate(t, flow(t,
			workflow.Step{ID: "draft", Member: "writer"},
			workflow.Step{ID: "score", Member: "critic", After: []string{"draft"}},
			workflow.Step{ID: "fix", Member: "writer", After: []string{"score"}, When: "steps.score.data.score < 7"},
			workflow.Step{ID: "print", Member: "printer", After: []string{"fix"}},
		))
		m.end("draft", "A draft.")
		return m
	}
	t.Run("true: it runs, with the values on record", func(t *testing.T) {
		m := example(t)
		m.end("score", `{"score": 5}`)
		m.wants("fix")
		fix := m.step("fix")
		if fix.Step.GetRefusal() != nil {
			t.Error(fix.Step)
		}
		m.end("fix", "fixed")
		if m.input("print") != "fixed" {
			t.Errorf("%q", m.input("print"))
		}
	})
	t.Run("false: SKIPPED, and the join ignores it: the next one gets what it would have got", func(t *testing.T) {
		m := example(t)
		m.end("score", `{"score": 9}`)
		r := m.step("fix").Step.GetRefusal()
		if r.GetOutcome() != teamv1.Outcome_OUTCOME_SKIPPED || !strings.Contains(r.GetError().GetMessage(), "steps.score.data.score < 7") {
			t.Errorf("%v", r)
		}
		m.wants("print")
		if m.input("print") != `{"score": 9}` {
			t.Errorf("%q", m.input("print"))
		}
		m.end("print", "out")
		if agent.Text(m.reply) != "out" {
			t.Errorf("%v %v", m.reply, m.err)
		}
	})
	t.Run("an answer without the data that the condition reads fails the run", func(t *testing.T) {
		m := example(t)
		m.end("score", `no JSON`)
		if e := agent.AsError(m.err); e == nil || e.Reason != agent.ReasonConditionDataMissing || !strings.Contains(e.Message, `step "fix": when: it reads steps.score.data.score, but the answer of "score" has no such data: "no JSON"`) {
			t.Error(m.err)
		}
	})
	t.Run("JSON in a code block counts", func(t *testing.T) {
		m := example(t)
		m.end("score", "The score:\n```json\n{\"score\": 5}\n```")
		m.wants("fix")
	})
	t.Run("reason and values of a decision", func(t *testing.T) {
		w := flow(t, workflow.Step{ID: "a", Member: "writer", When: "input.contains('tides')"}, workflow.Step{ID: "b", Member: "writer", When: "input == ''"})
		d, err := decide(t, w, stateOf([]string{"writer"}))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"a": map[string]any{"input": "Write about tides"}, "b": map[string]any{"input": "Write about tides"}}
		if diff := cmp.Diff(want, d.Values.AsMap()); diff != "" || d.Reason != "a: input.contains('tides'); b skipped, not true: input == ''" {
			t.Error(d.Reason, diff)
		}
	})
	t.Run("the last step is skipped: the answer is that of the one before", func(t *testing.T) {
		m := simulate(t, flow(t, workflow.Step{ID: "a", Member: "writer"}, workflow.Step{ID: "b", Member: "writer", After: []string{"a"}, When: "false"}))
		m.end("a", "done")
		if agent.Text(m.reply) != "done" {
			t.Errorf("%v %v", m.reply, m.err)
		}
	})
	t.Run("R-000-19 every step skipped", func(t *testing.T) {
		m := simulate(t, flow(t, workflow.Step{ID: "a", Member: "writer", When: "false"}))
		if reasonOf(m.err) != agent.ReasonNoResponse {
			t.Errorf("%v %v", m.reply, m.err)
		}
	})
	t.Run("a skipped step in a join counts neither way", func(t *testing.T) {
		m := simulate(t, flow(t,
			workflow.Step{ID: "a", Member: "writer"}, workflow.Step{ID: "b", Member: "critic", When: "false"},
			workflow.Step{ID: "c", Member: "writer", After: []string{"a", "b"}},
		))
		m.end("a", "1")
		m.wants("c")
		if m.input("c") != "1" {
			t.Errorf("%q", m.input("c"))
		}
	})
}

func TestWorkflow_Join(t *testing.T) {
	three := func(last workflow.Step) []workflow.Step {
		last.ID, last.Member, last.After = "d", "writer", []string{"a", "b", "c"}
		return []workflow.Step{{ID: "a", Member: "a"}, {ID: "b", Member: "b"}, {ID: "c", Member: "c"}, last}
	}
	t.Run("ANY goes on with the first result, cancels the others and does not wait for them at the end", func(t *testing.T) {
		m := simulate(t, flow(t, three(workflow.Step{Join: workflow.JoinAny})...))
		m.wants("a", "b", "c")
		m.end("b", "second")
		m.wants("a", "c", "d")
		if m.dropped() != "a c" {
			t.Errorf("canceled: %q", m.dropped())
		}
		if m.input("d") != "second" {
			t.Errorf("%q", m.input("d"))
		}
		m.end("d", "done")
		if agent.Text(m.reply) != "done" {
			t.Errorf("%v %v, open %v", m.reply, m.err, m.open())
		}
	})
	t.Run("ANY runs once", func(t *testing.T) {
		m := simulate(t, flow(t, three(workflow.Step{Join: workflow.JoinAny})...))
		m.end("b", "2")
		m.end("a", "1")
		m.end("c", "3")
		m.wants("d")
	})
	t.Run("QUORUM", func(t *testing.T) {
		m := simulate(t, flow(t, three(workflow.Step{Join: workflow.JoinQuorum, Quorum: 2})...))
		m.end("c", "3")
		m.wants("a", "b")
		if m.dropped() != "" {
			t.Errorf("canceled before the quorum: %q", m.dropped())
		}
		m.end("a", "1")
		m.wants("b", "d")
		if m.dropped() != "b" {
			t.Errorf("canceled: %q", m.dropped())
		}
		if want := "## a\n\n1\n\n## c\n\n3"; m.input("d") != want {
			t.Errorf("%q", m.input("d"))
		}
	})
	t.Run("who is needed elsewhere is not canceled", func(t *testing.T) {
		m := simulate(t, flow(t, append(three(workflow.Step{Join: workflow.JoinAny}),
			workflow.Step{ID: "e", Member: "e", After: []string{"a"}},
			workflow.Step{ID: "f", Member: "f", After: []string{"d"}, Task: "{{steps.d.text}} {{steps.c.text}}"})...))
		m.end("b", "2")
		if m.dropped() != "" {
			t.Errorf("e comes after a, and f reads c: %q", m.dropped())
		}
		m.end("d", "4")
		m.wants("a", "c", "f")
		if m.dropped() != "c" {
			t.Errorf("canceled: %q", m.dropped())
		}
		m.end("a", "1")
		m.wants("c", "f", "e")
	})
	t.Run("what only leads to a loser is canceled or skipped as well", func(t *testing.T) {
		m := simulate(t, flow(t,
			workflow.Step{ID: "slow1", Member: "a"}, workflow.Step{ID: "slow2", Member: "a", After: []string{"slow1"}},
			workflow.Step{ID: "slow3", Member: "a", After: []string{"slow2"}}, workflow.Step{ID: "fast", Member: "b"},
			workflow.Step{ID: "end", Member: "c", After: []string{"slow3", "fast"}, Join: workflow.JoinAny},
		))
		m.wants("slow1", "fast")
		m.end("fast", "1")
		m.wants("slow1", "end")
		for _, id := range []string{"slow2", "slow3"} {
			if r := m.step(id).Step.GetRefusal(); r.GetOutcome() != teamv1.Outcome_OUTCOME_SKIPPED {
				t.Errorf("%s: %v", id, r)
			}
		}
		if m.dropped() != "slow1" {
			t.Errorf("canceled: %q", m.dropped())
		}
		m.end("slow1", "")
		m.end("end", "done")
		if agent.Text(m.reply) != "done" {
			t.Errorf("%v %v", m.reply, m.err)
		}
	})
	t.Run("a loser that fails all the same is no failure", func(t *testing.T) {
		m := simulate(t, flow(t, three(workflow.Step{Join: workflow.JoinAny})...))
		m.s.Team.ReportErrors = true
		m.end("b", "2")
		m.fail("d", agent.Errorf(agent.CodeInternal, agent.ReasonDelegationFailed, "no"))
		if agent.Text(m.reply) != "2" || m.err != nil {
			t.Errorf("%v %v", m.reply, m.err)
		}
	})
	t.Run("ALL", func(t *testing.T) {
		m := simulate(t, flow(t, three(workflow.Step{Join: workflow.JoinAll})...))
		m.end("c", "3")
		m.end("a", "1")
		m.wants("b")
		m.end("b", "2")
		m.wants("d")
	})
}

func TestWorkflow_Repeat(t *testing.T) {
	fix := flow(t,
		workflow.Step{ID: "draft", Member: "writer"},
		workflow.Step{ID: "fix", Member: "writer", After: []string{"draft"}, Task: "Improve: {{steps.draft.text}}",
			Repeat: &workflow.Repeat{Until: "steps.fix.data.ok", Max: 3}},
		workflow.Step{ID: "print", Member: "printer", After: []string{"fix"}},
	)
	t.Run("again with its own last result, until it is good", func(t *testing.T) {
		m := simulate(t, fix)
		m.end("draft", "A draft.")
		if m.input("fix") != "Improve: A draft." {
			t.Errorf("%q", m.input("fix"))
		}
		m.end("fix", `{"ok": false, "n": 1}`)
		m.wants("fix")
		if want := "Improve: A draft.\n\n## Your last result\n\n" + `{"ok": false, "n": 1}`; m.input("fix") != want {
			t.Errorf("%q", m.input("fix"))
		}
		m.end("fix", `{"ok": true, "n": 2}`)
		m.wants("print")
		if m.input("print") != `{"ok": true, "n": 2}` || m.ran() != "draft fix fix print" {
			t.Errorf("%q, %s", m.input("print"), m.ran())
		}
	})
	t.Run("C-07 max reached with until false: MAX_ROUNDS_EXCEEDED", func(t *testing.T) {
		m := simulate(t, fix)
		m.end("draft", "A draft.")
		for range 3 {
			m.end("fix", "not good")
		}
		if reasonOf(m.err) != agent.ReasonMaxRounds || !strings.Contains(m.err.Error(), `step "fix"`) || m.ran() != "draft fix fix fix" {
			t.Errorf("%v, %s", m.err, m.ran())
		}
	})
}

func TestWorkflow_RepeatThatFails(t *testing.T) {
	m := simulate(t, flow(t,
		workflow.Step{ID: "fix", Member: "writer", Repeat: &workflow.Repeat{Until: "steps.fix.data.ok", Max: 1}},
		workflow.Step{ID: "print", Member: "printer", After: []string{"fix"}},
	))
	m.s.Team.ReportErrors = true
	m.end("fix", "not good")
	if r := m.step("print").Step.GetRefusal(); r.GetOutcome() != teamv1.Outcome_OUTCOME_SKIPPED || reasonOf(m.err) != agent.ReasonMaxRounds {
		t.Errorf("%v, %v", r, m.err)
	}
}

func TestWorkflow_ConditionsSeeOnlyWhatRanBefore(t *testing.T) {
	m := simulate(t, flow(t,
		workflow.Step{ID: "other", Member: "writer"},
		workflow.Step{ID: "fix", Member: "writer", Repeat: &workflow.Repeat{Until: "size(steps) == 1 && !('other' in steps)", Max: 2}},
	))
	m.end("other", "1")
	m.end("fix", "2")
	if m.err != nil || m.reply == nil || m.ran() != "other fix" {
		t.Errorf("%v, %v, %s", m.reply, m.err, m.ran())
	}
}

func TestWorkflow_OvertakenRepeat(t *testing.T) {
	m := simulate(t, flow(t,
		workflow.Step{ID: "fix", Member: "writer", Repeat: &workflow.Repeat{Until: "steps.fix.data.ok"}}, workflow.Step{ID: "fast", Member: "writer"},
		workflow.Step{ID: "end", Member: "writer", After: []string{"fix", "fast"}, Join: workflow.JoinAny},
	))
	m.end("fast", "1")
	m.end("fix", "not good")
	m.wants("end")
}

func TestWorkflow_Human(t *testing.T) {
	w := flow(t,
		workflow.Step{ID: "draft", Member: "writer"},
		workflow.Step{ID: "approve", After: []string{"draft"}, Human: &workflow.Human{
			Question: "Publish {{steps.draft.text}}?", Options: []string{"yes", "no"}, Roles: []string{"editor"},
		}},
		workflow.Step{ID: "print", Member: "printer", After: []string{"approve"}, When: "steps.approve.text == 'yes'", Task: "Print {{steps.draft.text}}"},
	)
	asked := func(t *testing.T) *sim {
		m := simulate(t, w)
		m.end("draft", "the text")
		st := m.step("approve").Step
		want := &teamv1.Ask{Question: "Publish the text?", Options: []string{"yes", "no"}, Roles: []string{"editor"}}
		if st.GetKind() != teamv1.Step_KIND_HUMAN || !st.GetAsync() || cmp.Diff(want.GetOptions(), st.GetAsk().GetOptions()) != "" || st.GetAsk().GetQuestion() != want.GetQuestion() {
			t.Errorf("%v", st)
		}
		return m
	}
	t.Run("yes", func(t *testing.T) {
		m := asked(t)
		m.end("approve", "yes")
		m.end("print", "printed")
		if agent.Text(m.reply) != "printed" {
			t.Errorf("%v %v", m.reply, m.err)
		}
	})
	t.Run("no: the answer of people is not the run's", func(t *testing.T) {
		m := asked(t)
		m.end("approve", "no")
		if agent.Text(m.reply) != "the text" {
			t.Errorf("%v %v", m.reply, m.err)
		}
	})
}

func TestWorkflow_ReportErrors(t *testing.T) {
	slow := agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "too slow")
	t.Run("S-19 dependents are skipped, others run", func(t *testing.T) {
		m := simulate(t, flow(t,
			workflow.Step{ID: "a", Member: "a"}, workflow.Step{ID: "b", Member: "b"},
			workflow.Step{ID: "c", Member: "c", After: []string{"a"}}, workflow.Step{ID: "d", Member: "d", After: []string{"c"}},
			workflow.Step{ID: "e", Member: "e", After: []string{"a", "b"}, Join: workflow.JoinAny},
		))
		m.s.Team.ReportErrors = true
		m.fail("a", slow)
		m.wants("b")
		m.end("b", "2")
		m.wants("e")
		if m.input("e") != "2" || m.ran() != "a b e" {
			t.Errorf("%q, %s", m.input("e"), m.ran())
		}
		for _, id := range []string{"c", "d"} {
			if r := m.step(id).Step.GetRefusal(); r.GetOutcome() != teamv1.Outcome_OUTCOME_SKIPPED || r.GetError().GetReason() != agent.ReasonDelegationFailed {
				t.Errorf("%s: %v", id, r)
			}
		}
		m.end("e", "partial")
		if agent.Text(m.reply) != "partial" {
			t.Errorf("%v %v", m.reply, m.err)
		}
	})
	t.Run("R-000-27 nothing succeeded: the first failure as it is", func(t *testing.T) {
		m := simulate(t, flow(t, workflow.Step{ID: "a", Member: "a"}, workflow.Step{ID: "b", Member: "b", After: []string{"a"}}))
		m.s.Team.ReportErrors = true
		m.fail("a", slow)
		if m.err != slow { //nolint:errorlint // the very same error
			t.Errorf("%v", m.err)
		}
	})
}

func TestNewWorkflow_Faults(t *testing.T) {
	_, err := workflow.New(workflow.Config{Steps: []workflow.Step{
		{ID: "draft", Member: "writer", Quorum: 1},
		{ID: "draft", Member: "writer"},
		{Member: "writer"},
		{ID: "a b", Member: "writer"},
		{ID: "score", Member: "critic", After: []string{"drft"}, Join: "SOME"},
		{ID: "fix", Member: "writer", After: []string{"draft"}, When: "steps.scroe.text == ''", Task: "{{steps.drft.text}}", Repeat: &workflow.Repeat{Max: -1}},
		{ID: "late", Member: "writer", When: "steps.draft.text == ''", Task: "{{steps.late.text}}", Join: workflow.JoinAny},
		{ID: "nobody"},
		{ID: "both", Member: "writer", Human: &workflow.Human{Question: "?"}},
		{ID: "ask", Human: &workflow.Human{}, Task: "x", Timeout: -1},
		{ID: "many", Member: "writer", After: []string{"draft"}, Join: workflow.JoinQuorum, Quorum: 2},
		{ID: "group", Member: "writer", Parallel: []workflow.Step{{ID: "in", Member: "writer", After: []string{"draft"}}}},
		{ID: "never", Member: "writer", Retry: &teamv1.Retry{Attempts: new(int32)}},
		{ID: "often", Member: "writer", Retry: &teamv1.Retry{Backoff: durationpb.New(time.Second)}},
	}})
	want := []string{
		`steps[1].id step "draft": this id is used twice, first in steps[0]; ids of steps must be unique`,
		`steps[2].id steps[2]: has no id; add one`,
		`steps[3].id step "a b": the id must be 1 to 63 letters, digits, _ and -, and must not begin with -`,
		`steps[11] step "group": is a group: besides parallel it can only have id and after; move the rest to its steps`,
		`steps[4].after[0] step "score": runs after "drft", which is not a step; known here: a b, ask, both, draft, fix, group, in, late, many, never, nobody, often`,
		`steps[0].quorum step "draft": quorum needs join: QUORUM; add that, or remove quorum`,
		`steps[4].join step "score": is "SOME"; it must be ALL, ANY or QUORUM`,
		`steps[5].repeat.max step "fix": is -1; it must be at least 1, or left out for 3`,
		`steps[5].repeat.until step "fix": is missing; add the condition that ends the repetition`,
		`steps[5].when step "fix": no such step "scroe"; known here: a b, ask, both, draft, fix, in, late, many, never, nobody, often, score`,
		`steps[5].task step "fix": no such placeholder {{steps.drft.text}}; known here: brief.expected_output, brief.task_description, context.KEY, input, steps.a b.text, steps.ask.text, steps.both.text, ` +
			`steps.draft.text, steps.fix.text, steps.in.text, steps.late.text, steps.many.text, steps.never.text, steps.nobody.text, steps.often.text, steps.score.text`,
		`steps[6].join step "late": has no effect, because no step comes before it; remove it, or add after`,
		`steps[6].when step "late": reads step "draft", which does not run before it; name it in after`,
		`steps[6].task step "late": reads its own result, which it does not have yet`,
		`steps[7] step "nobody": has neither a member nor a question to people; set member or human`,
		`steps[8].human step "both": has both a member and a question to people; remove member or human`,
		`steps[9].human.question step "ask": is empty; write the question`,
		`steps[9].timeout step "ask": is negative; it must be more than 0, or left out`,
		`steps[10].quorum step "many": the quorum is 2, but it must be 1 to 1, the number of steps before this one`,
		`steps[12].retry.attempts step "never": attempts is 0; it must be at least 1, or left out for the member's`,
	}
	if diff := cmp.Diff(want, faultTexts(err)); diff != "" {
		t.Error(diff)
	}
	t.Run("cycles are named", func(t *testing.T) {
		_, err := workflow.New(workflow.Config{Steps: []workflow.Step{
			{ID: "start", Member: "w"}, {ID: "a", Member: "w", After: []string{"start", "c"}},
			{ID: "b", Member: "w", After: []string{"a"}}, {ID: "c", Member: "w", After: []string{"b"}},
		}})
		want := []string{`steps[1].after workflow: steps form a cycle: a -> b -> c -> a; break it by removing one after`}
		if diff := cmp.Diff(want, faultTexts(err)); diff != "" {
			t.Error(diff)
		}
		if _, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "a", Member: "w", After: []string{"a"}}}}); err == nil || !strings.Contains(err.Error(), "a -> a") {
			t.Error(err)
		}
	})
	if _, err := workflow.New(workflow.Config{}); err == nil {
		t.Error("a workflow without steps")
	}
}

func BenchmarkWorkflow_Next(b *testing.B) {
	w, err := workflow.New(workflow.Config{Steps: []workflow.Step{
		{ID: "draft", Member: "writer"}, {ID: "score", Member: "critic", After: []string{"draft"}},
		{ID: "fix", Member: "writer", After: []string{"score"}, When: "steps.score.data.score < 7"},
	}})
	if err != nil {
		b.Fatal(err)
	}
	s := stateOf([]string{"writer"}, ended("writer", "draft", "A draft."), ended("critic", "score", `{"score": 5}`))
	b.ReportAllocs()
	for b.Loop() {
		if d, err := w.Next(s); err != nil || len(d.Steps) != 1 {
			b.Fatal(d, err)
		}
	}
}
