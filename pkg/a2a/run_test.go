package a2a_test

import (
	"testing"
	"testing/synctest"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// week is how long a question stays open, and a bit.
const week = 7*24*time.Hour + time.Minute

func TestTime(t *testing.T) {
	t.Run("a question that nobody answers ends the run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, script(t, "ask", ask("who?"), say("{{answer}}")))
			id := r.send(t, ann(t), message("ask", "x")).GetId()
			updates := r.subscribe(t, id, 0)
			time.Sleep(week)
			v := follow(t, updates)
			task := wantState(t, r.get(t, id), failed)
			sameTask(t, v.task, task)
			if e := project.RunOf(task.GetMetadata()).GetError(); e.GetReason() != agent.ReasonTimeout {
				t.Errorf("error is %v", e)
			}
		})
	})
	t.Run("one of two questions lapses, and the task works on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, script(t, "left", ask("left?"), say("L:{{answer}}")), script(t, "right", ask("right?"), say("R:{{answer}}")))
			r.newTeamOf(t, team.Config{ID: "team", Scheduler: together("left", "right"), ReportErrors: true}, "left", "right")
			task := wantState(t, r.send(t, ann(t), message("team", "go")), inputRequired)
			wantState(t, r.send(t, ann(t), reply(task.GetId()+"~1", "l")), completed)
			time.Sleep(week)
			task = r.until(t, task.GetId(), completed)
			f := project.RunOf(task.GetMetadata()).GetFailedDelegations()
			if len(f) != 1 || f[0].GetPath() != "team/right" || f[0].GetOutcome() != teamv1.Outcome_OUTCOME_TIMED_OUT {
				t.Errorf("failed: %v", f)
			}
		})
	})
	t.Run("waiting for people does not use up the caller's time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, script(t, "ask", ask("who?"), say("{{answer}}")))
			req := about(message("ask", "x"), "deadline", time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano))
			id := r.send(t, ann(t), req).GetId()
			time.Sleep(24 * time.Hour)
			wantState(t, r.send(t, ann(t), reply(id, "me")), completed)
		})
	})
	t.Run("a message id is known for a day", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, echo("echo"))
			req := message("echo", "x")
			first := r.send(t, ann(t), req)
			time.Sleep(24*time.Hour - time.Second)
			if task := r.send(t, ann(t), req); task.GetId() != first.GetId() {
				t.Error("forgotten too early")
			}
			time.Sleep(2 * time.Second)
			if task := r.send(t, ann(t), req); task.GetId() == first.GetId() {
				t.Error("known for too long")
			}
		})
	})
	t.Run("cancel waits ten seconds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, _, letGo := stubborn("stubborn")
			r := start(t, a)
			defer letGo()
			id := r.send(t, ann(t), atOnce(message("stubborn", "x"))).GetId()
			synctest.Wait()
			before := time.Now()
			task, err := r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: id})
			if err != nil {
				t.Fatal(err)
			}
			wantState(t, task, working)
			if waited := time.Since(before); waited != 10*time.Second {
				t.Errorf("waited %s", waited)
			}
		})
	})
}
