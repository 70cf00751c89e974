package tests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/tests/rig"
)

const (
	completedTask = a2av1.TaskState_TASK_STATE_COMPLETED
	failedTask    = a2av1.TaskState_TASK_STATE_FAILED
)

// cast are four agents, each with a model of its own name.
const cast = `
models: {a: MODEL(a), b: MODEL(b), c: MODEL(c), d: MODEL(d), lead: MODEL(lead)}
agents: {a: {model: a}, b: {model: b}, c: {model: c}, d: {model: d}}
teams:
`

func TestS_14_Cycles(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, cast+`
  circle: {members: [{agent: a}], supervisor: {rules: [{id: on, when: "true", next: [a]}]}}
  twice: {workflow: {steps: [{parallel: [{id: de, agent: a, task: same}, {id: fr, agent: a, task: same}]}]}}
  again: {workflow: {steps: [{id: fix, agent: b, task: same, repeat: {until: "steps.fix.data.ok", max: 9}}]}}
`)
		s.llm.Answer("a", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "same"} })
		s.llm.Answer("b", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "no"} })
		t.Run("S-14 R-000-29 a supervisor's member with the same message: CYCLE_DETECTED on the second", func(t *testing.T) {
			task := s.ask(t, "circle", "same", failedTask)
			if e := runOf(task).GetError(); e.GetReason() != agent.ReasonCycleDetected || !strings.Contains(e.GetMessage(), `"a"`) {
				t.Error(e)
			}
			if diff := cmp.Diff([]string{"a < same"}, s.asks("a")); diff != "" {
				t.Error(diff)
			}
		})
		t.Run("S-14 C-23 two steps of one member with the same text are no cycle", func(t *testing.T) {
			task := s.ask(t, "twice", "x", completedTask)
			if got := shelf(task)[0]; got != "result: ## a (de)\n\nsame\n\n## a (fr)\n\nsame" {
				t.Errorf("%q", got)
			}
		})
		t.Run("S-14 C-23 a repeat that is given the same again is one", func(t *testing.T) {
			task := s.ask(t, "again", "x", failedTask)
			if e := runOf(task).GetError(); e.GetReason() != agent.ReasonCycleDetected || len(s.asks("b")) != 2 {
				t.Error(e, s.asks("b"))
			}
		})
	})
}

// TestC_16_SideBySide: a supervisor's parallel recipients (C-06, C-16).
func TestC_16_SideBySide(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, cast+`
  both:
    members: [{agent: a}, {agent: b}, {agent: c}]
    supervisor: {rules: [{id: one, when: "turn == 1", next: [c, a]}, {id: end, when: "true", finish: last}]}
  broken:
    members: [{agent: a}, {agent: b}]
    supervisor: {rules: [{id: one, when: "turn == 1", next: [a, b]}, {id: end, when: "true", finish: last}]}
`)
		s.repeats("a", "c")
		s.llm.Answer("b", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Status: 400, Message: "no such book"} })
		t.Run("C-16 R-000-31 joined in the order of the rule, and an artifact each", func(t *testing.T) {
			task := s.ask(t, "both", "x", completedTask)
			if diff := cmp.Diff([]string{"result: ## c\n\nc(x)\n\n## a\n\na(x)", "both/c 1: c(x)", "both/a 2: a(x)"}, shelf(task)); diff != "" {
				t.Error(diff)
			}
		})
		t.Run("C-06 R-000-27 one of them fails: the run does, with its cause, and keeps what the other said", func(t *testing.T) {
			task := s.ask(t, "broken", "x", failedTask)
			if e := runOf(task).GetError(); !strings.Contains(e.GetMessage(), "no such book") {
				t.Error(e)
			}
			if diff := cmp.Diff([]string{"broken/a 1: a(x)"}, shelf(task)); diff != "" {
				t.Errorf("R-002-31: %s", diff)
			}
		})
	})
}

// endless gives two members work in turn, with another text each time.
type endless struct{ team.Base }

func (endless) Next(s *team.State) (team.Decision, error) {
	step := &teamv1.Step{Kind: teamv1.Step_KIND_DELEGATE, Member: []string{"tick", "tock"}[s.Rounds%2]}
	step.Input = &teamv1.Input{Message: agent.UserMessage("", fmt.Sprint("round ", s.Rounds))}
	return team.Decision{Steps: []*teamv1.Step{step}, Reason: "on and on"}, nil
}

func TestS_15_StepLimit(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		echo := func(id string) agent.Agent {
			return act(id, func(_ context.Context, text string) (string, error) { return text, nil })
		}
		m := rig.Manager(t, echo("tick"), echo("tock"))
		register(t, m, "custom", endless{}, nil, team.Member{Agent: "tick"}, team.Member{Agent: "tock"})
		s := playAgents(t, place, fakellm.New(t), m)
		task := s.ask(t, "team", "go", failedTask)
		run := runOf(task)
		if e := run.GetError(); e.GetReason() != agent.ReasonMaxIterations || !strings.Contains(e.GetMessage(), "a cycle between its members is possible") {
			t.Errorf("S-15 R-000-28: %v", e)
		}
		done := 0
		for _, d := range run.GetDelegations() {
			if d.GetOutcome() == teamv1.Outcome_OUTCOME_SUCCEEDED {
				done++
			}
		}
		if done != 100 || len(run.GetDelegations()) != 101 {
			t.Errorf("S-15 C-07: %d of %d delegations have worked, want 100 of 101", done, len(run.GetDelegations()))
		}
		if diff := cmp.Diff([]string{"team/tick 99: round 98", "team/tock 100: round 99"}, shelf(task)); diff != "" {
			t.Errorf("R-002-31: %s", diff)
		}
	})
}

func TestS_18_Workflows(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, cast+`
  line: {workflow: {steps: [{id: one, agent: a}, {id: two, agent: b, after: [one]}, {id: three, agent: c, after: [two]}, {id: four, agent: d, after: [three]}]}}
  side: {workflow: {steps: [{parallel: [{id: one, agent: a}, {id: two, agent: b}, {id: three, agent: c}]}]}}
  mixed: {workflow: {steps: [{id: one, agent: a}, {id: both, after: [one], parallel: [{id: two, agent: b}, {id: three, agent: c}]}, {id: four, agent: d, after: [both]}]}}
  most:
    workflow: {steps: [{parallel: [{id: one, agent: a}, {id: two, agent: b}, {id: three, agent: c}]}, {id: four, agent: d, after: [one, two, three], join: QUORUM, quorum: 2}]}
`)
		s.repeats("a", "b", "c", "d")
		t.Run("S-18 C-02 sequential: each gets what the one before said", func(t *testing.T) {
			task := s.ask(t, "line", "x", completedTask)
			if diff := cmp.Diff([]string{"result: d(c(b(a(x))))"}, shelf(task)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"a < x", "b < a(x)", "c < b(a(x))", "d < c(b(a(x)))"}, s.asks()); diff != "" {
				t.Error(diff)
			}
		})
		t.Run("S-18 C-16 parallel: all of them at once, joined in order, and an artifact each", func(t *testing.T) {
			gate := fakellm.NewGate()
			for _, m := range []string{"a", "b", "c"} {
				s.llm.Script(m, fakellm.Turn{Text: m + " says", Gate: gate})
			}
			updates := s.client(t, true).Stream(t.Context(), s.message("side", "y"))
			go func() {
				if gate.Wait(t.Context(), 3) == nil { // all three are being asked
					gate.Open()
				}
			}()
			all, err := rig.Collect(updates)
			if err != nil {
				t.Fatal(err)
			}
			task := s.check(t, all[0].GetTask().GetId())
			want := []string{"result: ## a\n\na says\n\n## b\n\nb says\n\n## c\n\nc says", "side/a 1: a says", "side/b 2: b says", "side/c 3: c says"}
			if diff := cmp.Diff(want, shelf(task)); diff != "" {
				t.Error(diff)
			}
		})
		t.Run("S-18 hybrid: a, then b and c, then d", func(t *testing.T) {
			before := len(s.llm.Requests())
			gate := fakellm.NewGate()
			s.llm.Script("b", fakellm.Turn{Text: "B", Gate: gate})
			s.llm.Script("c", fakellm.Turn{Text: "C", Gate: gate})
			go func() {
				if gate.Wait(t.Context(), 2) == nil {
					gate.Open()
				}
			}()
			task := s.ask(t, "mixed", "z", completedTask)
			if diff := cmp.Diff([]string{"result: d(## b\n\nB\n\n## c\n\nC)"}, shelf(task)); diff != "" {
				t.Error(diff)
			}
			reqs := s.llm.Requests()[before:]
			if len(reqs) != 4 || reqs[0].Model != "a" || reqs[3].Model != "d" || reqs[1].Arrived.Before(reqs[0].Finished) ||
				reqs[3].Arrived.Before(reqs[1].Finished) || reqs[3].Arrived.Before(reqs[2].Finished) {
				t.Errorf("the waves are not in order: %v", s.asks()[before:])
			}
			for _, r := range reqs[1:3] {
				if r.Last() != "a(z)" {
					t.Errorf("%s was given %q", r.Model, r.Last())
				}
			}
		})
		t.Run("S-18 QUORUM: the loser's request is closed, and the run has not failed", func(t *testing.T) {
			loser, winners := fakellm.NewGate(), fakellm.NewGate()
			s.llm.Script("b", fakellm.Turn{Text: "never", Gate: loser})
			s.llm.Script("a", fakellm.Turn{Text: "a(q)", Gate: winners})
			s.llm.Script("c", fakellm.Turn{Text: "c(q)", Gate: winners})
			go func() {
				if loser.Wait(t.Context(), 1) == nil { // it is being asked
					winners.Open()
				}
			}()
			before := len(s.llm.Requests("b"))
			task := s.ask(t, "most", "q", completedTask)
			if diff := cmp.Diff([]string{"result: d(## a\n\na(q)\n\n## c\n\nc(q))"}, shelf(task)); diff != "" {
				t.Error(diff)
			}
			if r := s.llm.Requests("b")[before:]; len(r) != 1 || !r[0].Gone {
				t.Errorf("the loser's request: %+v", r)
			}
			run := runOf(task)
			if len(run.GetFailedDelegations()) > 0 || run.GetDelegations()[1].GetOutcome() != teamv1.Outcome_OUTCOME_CANCELED {
				t.Error(run)
			}
		})
	})
}

func TestS_19_StepFails(t *testing.T) {
	t.Parallel()
	steps := `{steps: [{id: one, agent: a}, {id: two, agent: b, after: [one]}, {id: three, agent: c, after: [two]}, {id: four, agent: d, after: [one]}]`
	onStages(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, cast+`
  strict: {workflow: {steps: [{id: one, agent: a}, {id: two, agent: b, after: [one]}, {id: three, agent: c, after: [two]}]}}
  partial: {workflow: `+steps+`, on_member_error: CONTINUE_PARTIAL}}
  hopeless: {workflow: {steps: [{id: two, agent: b}, {id: three, agent: c, after: [two]}], on_member_error: CONTINUE_PARTIAL}}
  patient: {workflow: {steps: [{id: one, agent: c, retry: {attempts: 4, backoff: 1ms}}]}, limits: {retry: {attempts: 1}}}
  short: {workflow: {steps: [{id: one, agent: a}, {id: two, agent: d, after: [one], timeout: 800ms}], on_member_error: CONTINUE_PARTIAL}}
`)
		s.repeats("a", "d")
		s.llm.Answer("b", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Status: 400, Message: "no such book"} })
		s.llm.Answer("c", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "c"} })
		t.Run("S-19 R-000-27 the run fails with that cause, the next step is never called, results are kept", func(t *testing.T) {
			task := s.ask(t, "strict", "x", failedTask)
			if e := runOf(task).GetError(); !strings.Contains(e.GetMessage(), "no such book") || len(s.asks("c")) != 0 {
				t.Error(e, s.asks("c"))
			}
			if diff := cmp.Diff([]string{"strict/a 1: a(x)"}, shelf(task)); diff != "" {
				t.Errorf("R-002-31: %s", diff)
			}
		})
		t.Run("S-19 C-06 CONTINUE_PARTIAL: dependents are SKIPPED, others run, the failure is told", func(t *testing.T) {
			task := s.ask(t, "partial", "x", completedTask)
			if diff := cmp.Diff([]string{"result: d(a(x))"}, shelf(task)); diff != "" || len(s.asks("c")) != 0 {
				t.Error(diff, s.asks("c"))
			}
			var got []string
			for _, d := range runOf(task).GetDelegations() {
				got = append(got, d.GetPath()+" "+strings.TrimPrefix(d.GetOutcome().String(), "OUTCOME_"))
			}
			want := []string{"partial/a SUCCEEDED", "partial/b FAILED", "partial/d SUCCEEDED", "partial/c SKIPPED"}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if f := runOf(s.get(t, task.GetId())).GetFailedDelegations(); len(f) != 1 || f[0].GetPath() != "partial/b" {
				t.Error(f)
			}
		})
		t.Run("S-19 nothing succeeds: the run fails", func(t *testing.T) {
			task := s.ask(t, "hopeless", "x", failedTask)
			if e := runOf(task).GetError(); !strings.Contains(e.GetMessage(), "no such book") {
				t.Error(e)
			}
		})
		t.Run("R-002-23 R-002-32 a step's retry: four attempts of one delegation", func(t *testing.T) {
			for range 3 {
				s.llm.Script("c", fakellm.Turn{Status: 500})
			}
			before := len(s.asks("c"))
			task := s.ask(t, "patient", "x", completedTask)
			if d := runOf(task).GetDelegations(); len(d) != 1 || d[0].GetAttempts() != 4 || len(s.asks("c"))-before != 4 {
				t.Error(d, s.asks("c"))
			}
		})
		t.Run("R-002-31 a step's time: TIMED_OUT, its request is closed, the rest is the answer", func(t *testing.T) {
			s.llm.Script("d", fakellm.Turn{Text: "never", Gate: fakellm.NewGate()})
			before := len(s.llm.Requests("d"))
			task := s.ask(t, "short", "x", completedTask)
			if f := runOf(task).GetFailedDelegations(); len(f) != 1 || f[0].GetOutcome() != teamv1.Outcome_OUTCOME_TIMED_OUT {
				t.Error(f)
			}
			if r := s.llm.Requests("d")[before:]; len(r) != 1 || !r[0].Gone {
				t.Errorf("%+v", r)
			}
			if diff := cmp.Diff([]string{"result: a(x)"}, shelf(task)); diff != "" {
				t.Error(diff)
			}
		})
	})
}

// TestR_002_31_GlobalTimeout: what was finished when the time of the run is up is
// kept (R-002-3.4, R-002-8.3).
func TestR_002_31_GlobalTimeout(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, cast+`
  late: {workflow: {steps: [{parallel: [{id: one, agent: a}, {id: two, agent: b}, {id: three, agent: c}]}]}, limits: {timeout: 1s}}
`)
		s.repeats("a")
		s.llm.Script("b", fakellm.Turn{Text: "never", Gate: fakellm.NewGate()})
		s.llm.Script("c", fakellm.Turn{Text: "never", Gate: fakellm.NewGate()})
		task := s.ask(t, "late", "x", failedTask)
		if e := runOf(task).GetError(); e.GetReason() != agent.ReasonTimeout {
			t.Error(e)
		}
		if diff := cmp.Diff([]string{"late/a 1: a(x)"}, shelf(task)); diff != "" {
			t.Error(diff)
		}
		for _, r := range s.llm.Requests("b", "c") {
			if !r.Gone {
				t.Errorf("R-002-3.4: the request of %s was not closed", r.Model)
			}
		}
	})
}

// TestC_04_Broadcast: all get the message, a model writes the answer, and its words
// stream as the team's own.
func TestC_04_Broadcast(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, cast+`
  all: {members: [{agent: a}, {agent: b, enabled: false}, {agent: c}], broadcast: {model: lead, instructions: Be fair.}}
`)
		s.repeats("a", "b", "c")
		s.llm.Script("lead", fakellm.Turn{Text: "Both of them say x.", Chunks: 4})
		rig.Each(t, s.Target, func(t *testing.T, c rig.Client) {
			if c.Binding() != "grpc" {
				s.llm.Script("lead", fakellm.Turn{Text: "Both of them say x.", Chunks: 4})
			}
			updates, task := s.told(t, c, "all", "x", completedTask)
			if diff := cmp.Diff([]string{"result: Both of them say x."}, shelf(task)); diff != "" {
				t.Error(diff)
			}
			pieces := 0
			for _, u := range updates {
				if u.GetArtifactUpdate() != nil {
					pieces++
				}
			}
			if pieces < 2 {
				t.Errorf("the answer came in %d pieces", pieces)
			}
		})
		reqs := s.llm.Requests("lead")
		if !strings.HasPrefix(reqs[0].System, "Be fair.") || !strings.Contains(reqs[0].Last(), "Result of c: succeeded\n\nc(x)") || len(s.asks("b")) != 0 {
			t.Errorf("%q %q %v", reqs[0].System, reqs[0].Last(), s.asks("b"))
		}
	})
}

// TestC_16_OfAPeer: the artifacts that a peer's team gives its members are not part
// of its answer twice.
func TestC_16_OfAPeer(t *testing.T) {
	t.Parallel()
	far := play(t, rig.Memory(t), cast+"\n  side: {workflow: {steps: [{parallel: [{id: one, agent: a}, {id: two, agent: b}]}]}}\n")
	far.repeats("a", "b")
	for _, kind := range []string{
		fmt.Sprintf("{a2a: {card: %q}}", far.HTTP+"/side/.well-known/agent-card.json"),
		fmt.Sprintf("{grpc: {address: %q, agent_id: side}}", far.GRPC),
	} {
		near := play(t, rig.Memory(t), "\nagents: {peer: "+kind+"}\nteams:\n  top: {members: [{agent: peer, stream_inner: true}], supervisor: {rules: [{id: one, when: \"turn == 1\", next: [peer]}, {id: end, when: \"true\", finish: peer}]}}\n")
		task := near.ask(t, "top", "x", completedTask)
		text := "## a\n\na(x)\n\n## b\n\nb(x)"
		if diff := cmp.Diff([]string{"top/peer 1: " + text, "result: " + text}, shelf(task)); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}
