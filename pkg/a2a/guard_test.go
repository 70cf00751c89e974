package a2a_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
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
	over := func(t *testing.T, g agent.Guards, members ...agent.Agent) (*a2av1.Task, []a2a.Update, *rig) {
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
		var updates []a2a.Update
		v := follow(t, func(yield func(a2a.Update, error) bool) {
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
			warnings := a2a.RunOf(task.GetMetadata()).GetWarnings()
			if len(warnings) != 1 || !strings.Contains(warnings[0], name) || artifactText(task.GetArtifacts()[0]) != "echo: hi" {
				t.Errorf("%s: %v %v", name, warnings, task.GetArtifacts())
			}
			if !slices.ContainsFunc(updates, func(u a2a.Update) bool {
				s := u.Response.GetStatusUpdate()
				return s.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_WORKING && len(a2a.RunOf(s.GetMetadata()).GetWarnings()) == 1
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
			e := a2a.RunOf(task.GetMetadata()).GetError()
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
	_, err := r.Handler.Process(ann(t), &teamv1.ProcessRequest{AgentId: "team", Message: agent.UserMessage("m-9", "hi")})
	var e *agent.Error
	if !errors.As(err, &e) || e.Reason != agent.ReasonGuardrailBlocked || e.Code != agent.CodeFailedPrecondition || e.Details["guardrail"] != "ware" {
		t.Error(err)
	}
}
