package a2a_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// ware is a middleware made of a func.
type ware func(m *a2av1.Message) (agent.Verdict, error)

func (ware) Name() string { return "ware" }
func (w ware) Check(_ context.Context, p *agent.Passing) (agent.Verdict, error) {
	return w(p.Message)
}

func does(v agent.Verdict, err error) []agent.Guard {
	return []agent.Guard{{Middleware: ware(func(*a2av1.Message) (agent.Verdict, error) { return v, err })}}
}

func TestR_002_9_WhatReadersSee(t *testing.T) {
	over := func(t *testing.T, g agent.Guards, members ...agent.Agent) (*a2av1.Task, []feed.Update, *rig) {
		t.Helper()
		r := start(t, members...)
		var list []team.Member
		for _, m := range members {
			info, err := m.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, team.Member{Agent: info.GetId(), StreamInner: true})
		}
		r.streaming(t, team.Config{ID: "team", Guards: g}, list...)
		var updates []feed.Update
		v := follow(t, func(yield func(feed.Update, error) bool) {
			for u, err := range r.stream(t, message("team", "hi")) {
				updates = append(updates, u)
				if !yield(u, err) {
					return
				}
			}
		})
		task := r.get(t, v.task.GetId())
		sameTask(t, v.task, task)
		return task, updates, r
	}

	t.Run("R-002-9.1 R-002-9.2 a warning, as it comes and in the task", func(t *testing.T) {
		for name, g := range map[string]agent.Guards{
			"the input of":         {Input: does(agent.Verdict{}, errors.New("no"))},
			"the answer of":        {Output: does(agent.Verdict{}, errors.New("no"))},
			"is given":             {Delegation: does(agent.Verdict{}, errors.New("no"))},
			"the answer of member": {Result: does(agent.Verdict{}, errors.New("no"))},
		} {
			task, updates, _ := over(t, g, echo("one"))
			wantState(t, task, completed)
			warnings := project.RunOf(task.GetMetadata()).GetWarnings()
			if len(warnings) != 1 || !strings.Contains(warnings[0], name) || artifactText(task.GetArtifacts()[0]) != "echo: hi" {
				t.Errorf("%s: %v %v", name, warnings, task.GetArtifacts())
			}
			if !slices.ContainsFunc(updates, func(u feed.Update) bool {
				s := u.Response.GetStatusUpdate()
				return s.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_WORKING && len(project.RunOf(s.GetMetadata()).GetWarnings()) == 1
			}) {
				t.Errorf("%s: no warning while the task works", name)
			}
		}
	})

	t.Run("R-002-9.3 REJECTED, with the reason, and nothing of the answer", func(t *testing.T) {
		for name, g := range map[string]agent.Guards{
			"input": {Input: does(agent.Verdict{Block: "say please"}, nil)}, "output": {Output: does(agent.Verdict{Block: "say please"}, nil)},
			"delegation": {Delegation: does(agent.Verdict{Block: "say please"}, nil)}, "result": {Result: does(agent.Verdict{Block: "say please"}, nil)},
		} {
			task, _, _ := over(t, g, echo("one"))
			wantState(t, task, a2av1.TaskState_TASK_STATE_REJECTED)
			e := project.RunOf(task.GetMetadata()).GetError()
			if e.GetReason() != agent.ReasonGuardrailBlocked || e.GetDetails()["stage"] != name || len(task.GetArtifacts()) != 0 {
				t.Errorf("%s: %v, %v", name, e, task.GetArtifacts())
			}
			if text := agent.Text(task.GetStatus().GetMessage()); !strings.Contains(text, "say please") {
				t.Errorf("%s: the user is told %q", name, text)
			}
		}
	})

	t.Run("R-002-40 the answer is what was made of it, and nothing else of what members said is shown", func(t *testing.T) {
		masked := agent.Verdict{Message: agent.NewMessage("masked")}
		task, updates, r := over(t, agent.Guards{Output: does(masked, nil)}, echo("one"), echo("two"))
		wantShelf(t, wantState(t, task, completed), "result : masked")
		for _, u := range updates {
			if strings.Contains(u.Response.String(), "echo") {
				t.Error("a reader was told ", u.Response)
			}
		}
		child := r.get(t, task.GetId()+"~1")
		if got := artifactText(wantState(t, child, completed).GetArtifacts()[0]); got != "echo: hi" {
			t.Errorf("the member's own task says %q", got)
		}
	})

	t.Run("R-002-31 what was finished of a failed team is not shown where its answer would be looked at", func(t *testing.T) {
		broken := &agent.Func{ID: "two", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no such book")
		}}
		for _, guarded := range []bool{true, false} {
			var g agent.Guards
			if guarded {
				g.Output = does(agent.Verdict{}, nil)
			}
			r := start(t, echo("one"), broken)
			r.streaming(t, team.Config{ID: "team", Guards: g, Scheduler: through("one", "two")}, team.Member{Agent: "one"}, team.Member{Agent: "two"})
			task := wantState(t, r.send(t, ann(t), message("team", "hi")), failed)
			if got := len(task.GetArtifacts()); got != map[bool]int{true: 0, false: 1}[guarded] {
				t.Errorf("guarded %v: %v", guarded, shelf(task))
			}
		}
	})

	t.Run("R-002-08 a member's task shows what it was given and what was made of its answer", func(t *testing.T) {
		adds := func(text string) []agent.Guard {
			return []agent.Guard{{Middleware: ware(func(m *a2av1.Message) (agent.Verdict, error) {
				return agent.Verdict{Message: agent.NewMessage(agent.Text(m) + text)}, nil
			})}}
		}
		task, _, r := over(t, agent.Guards{Input: adds(" there"), Delegation: adds("!"), Result: adds("?")}, echo("one"))
		if got := artifactText(wantState(t, task, completed).GetArtifacts()[0]); got != "echo: hi there!?" {
			t.Error(got)
		}
		if got := agent.Text(task.GetHistory()[0]); got != "hi" {
			t.Errorf("the user has said %q", got)
		}
		child := wantState(t, r.get(t, task.GetId()+"~1"), completed)
		if got := agent.Text(child.GetHistory()[0]) + " -> " + artifactText(child.GetArtifacts()[0]); got != "hi there! -> echo: hi there!?" {
			t.Error(got)
		}
	})
}

// TestR_002_9_3_OverTheAgentService has a guardrail's refusal as an error.
func TestR_002_9_3_OverTheAgentService(t *testing.T) {
	r := start(t, echo("one"))
	r.streaming(t, team.Config{ID: "team", Guards: agent.Guards{Input: does(agent.Verdict{Block: "say please"}, nil)}}, team.Member{Agent: "one"})
	_, err := r.Process(ann(t), &teamv1.ProcessRequest{AgentId: "team", Message: agent.UserMessage("m-9", "hi")})
	var e *agent.Error
	if !errors.As(err, &e) || e.Reason != agent.ReasonGuardrailBlocked || e.Code != agent.CodeFailedPrecondition || e.Details["guardrail"] != "ware" {
		t.Error(err)
	}
}

// asked is a model that keeps what it is asked.
type asked struct {
	mu       sync.Mutex
	requests [][]string
}

func (*asked) Name() string { return "asked" }

func (m *asked) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		var texts []string
		for _, said := range req.Messages {
			texts = append(texts, said.Text)
		}
		m.mu.Lock()
		m.requests = append(m.requests, texts)
		m.mu.Unlock()
		yield(agent.ModelChunk{Turn: &teamv1.Turn{Text: "PIN noted"}}, nil)
	}
}

// TestR_002_40_WhatIsRemembered keeps of a conversation what middlewares made of
// it: of the input, of the answer, and of what was said meanwhile.
func TestR_002_40_WhatIsRemembered(t *testing.T) {
	mask := []agent.Guard{{Middleware: ware(func(m *a2av1.Message) (agent.Verdict, error) {
		return agent.Verdict{Message: agent.NewMessage(strings.ReplaceAll(agent.Text(m), "PIN", "***"))}, nil
	})}}
	m := &asked{}
	a, err := leader.NewAgent(leader.AgentConfig{ID: "clerk", Model: m, Memory: true, Guards: agent.Guards{Input: mask, Output: mask}})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, a, masking{listener{talker: talker{id: "desk"}}})
	r.send(t, ann(t), inContext("c", message("clerk", "my PIN")))
	r.wantKept(t, "c", "clerk", "USER: my ***", "AGENT: *** noted")
	r.send(t, ann(t), inContext("c", message("clerk", "again")))
	if diff := cmp.Diff([][]string{{"my ***"}, {"my ***", "*** noted", "again"}}, m.requests); diff != "" {
		t.Error("the model read something else: ", diff)
	}

	r.newTeamOf(t, team.Config{ID: "inner", Memory: true, Scheduler: through("clerk")}, "clerk")
	r.newTeamOf(t, team.Config{ID: "outer", Memory: true, Scheduler: through("inner"), Guards: agent.Guards{Delegation: mask}}, "inner")
	r.send(t, ann(t), inContext("e", message("outer", "your PIN")))
	r.wantKept(t, "e", "outer/inner", "USER: your ***", "AGENT: *** noted")

	task := r.send(t, ann(t), atOnce(inContext("d", message("desk", "hello"))))
	r.send(t, ann(t), reply(task.GetId(), "the PIN is 1"))
	r.wantKept(t, "d", "desk", "USER: hello", "USER: the *** is 1", "AGENT: thanks")
}

// masking puts on record what a middleware made of the follow-up.
type masking struct{ listener }

func (a masking) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		masked := func(ev *teamv1.Event) bool {
			m := ev.GetReceived().GetMessage()
			return m == nil || yield(&teamv1.Event{Scope: req.GetScope(), Agent: agent.Path(req), Kind: &teamv1.Event_Checked{Checked: &teamv1.Checked{
				Stage: teamv1.Checked_STAGE_INPUT, By: "mask", Ref: ev.GetSeq(),
				Message: agent.UserMessage("m", strings.ReplaceAll(agent.Text(m), "PIN", "***")),
			}}}, nil)
		}
		for _, ev := range req.GetRecorded() { // it came before the run began
			if !masked(ev) {
				return
			}
		}
		a.then = func(*teamv1.Received) *a2av1.Message { return agent.NewMessage("thanks") }
		for ev, err := range a.listener.Process(ctx, req) {
			if !yield(ev, err) || err != nil || !masked(ev) {
				return
			}
		}
	}
}
