package a2a_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
)

// R-001-54, R-001-55, R-002-31: a run that ends in a later round, for whatever reason,
// keeps the result of the round before, and says what the reason was.
func TestR_001_54_ResultOfTheRoundBefore(t *testing.T) {
	again := func(m *a2av1.Message) bool { return strings.Contains(agent.Text(m), "The last result") }
	author := func(then func(context.Context) error) *agent.Func {
		return &agent.Func{ID: "author", Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			if again(m) {
				return nil, then(ctx)
			}
			return agent.NewMessage("a draft"), nil
		}}
	}
	breaks := author(func(context.Context) error { return agent.Errorf(agent.CodeInternal, agent.ReasonTeamError, "no ink") })
	hangs := func() (a agent.Agent, entered <-chan struct{}) {
		in := make(chan struct{})
		return author(func(ctx context.Context) error {
			close(in)
			<-ctx.Done()
			return context.Cause(ctx)
		}), in
	}
	reviewed := func(t *testing.T, a agent.Agent, c team.Config) *rig {
		t.Helper()
		check, err := expr.CompileCheck("round >= 9")
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, a)
		c.ID, c.Scheduler, c.Review = "team", through("author"), &team.Review{Check: check, Threshold: new(0.5), MaxRounds: 3}
		r.newTeamOf(t, c, "author")
		return r
	}
	results := func(task *a2av1.Task) (own []string) {
		for _, line := range shelf(task) {
			if strings.HasPrefix(line, "result :") {
				own = append(own, line)
			}
		}
		return own
	}
	want := func(t *testing.T, task *a2av1.Task, reason string, own ...string) {
		t.Helper()
		if got := results(task); !slices.Equal(got, own) {
			t.Errorf("it shows %q, want %q", got, own)
		}
		if e := project.RunOf(task.GetMetadata()).GetError(); e.GetReason() != reason {
			t.Errorf("the reason is %v, want %s", e, reason)
		}
	}
	t.Run("a member fails", func(t *testing.T) {
		r := reviewed(t, breaks, team.Config{})
		v := follow(t, r.stream(t, message("team", "hi")))
		task := wantState(t, r.get(t, v.task.GetId()), failed)
		sameTask(t, v.task, task)
		want(t, task, agent.ReasonTeamError, "result : a draft")
	})
	t.Run("the time is up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, _ := hangs()
			r := reviewed(t, a, team.Config{Limits: &teamv1.Limits{Timeout: durationpb.New(time.Minute)}})
			want(t, wantState(t, r.send(t, ann(t), message("team", "hi")), failed), agent.ReasonTimeout, "result : a draft")
		})
	})
	t.Run("it is nested: the task of the part keeps it", func(t *testing.T) {
		r := reviewed(t, breaks, team.Config{})
		r.newTeam(t, "outer", through("team"), "team")
		task := wantState(t, r.send(t, ann(t), message("outer", "hi")), failed)
		want(t, task, agent.ReasonTeamError)
		want(t, r.get(t, task.GetId()+"~1"), agent.ReasonTeamError, "result : a draft")
	})
	t.Run("R-002-40 not what the team's guardrails have not seen", func(t *testing.T) {
		r := reviewed(t, breaks, team.Config{Guards: agent.Guards{Output: does(agent.Verdict{}, nil)}})
		task := wantState(t, r.send(t, ann(t), message("team", "hi")), failed)
		want(t, task, agent.ReasonTeamError)
		wantShelf(t, task)
	})
	t.Run("the gate's own failure shows the last result, once", func(t *testing.T) {
		r := reviewed(t, echo("author"), team.Config{Limits: &teamv1.Limits{MaxRounds: new(int32(2))}})
		v := follow(t, r.stream(t, message("team", "hi")))
		task := wantState(t, r.get(t, v.task.GetId()), failed)
		sameTask(t, v.task, task)
		if got := results(task); len(got) != 1 || !strings.Contains(got[0], "The last result") {
			t.Errorf("it shows %q", got)
		}
	})
	for _, tt := range []struct {
		name string
		stop a2a.Stop
		own  []string
	}{
		{"R-001-42 a stop that keeps it", a2a.Stop{Force: true, SavePartial: true}, []string{"result : a draft"}},
		{"R-001-42 a stop that drops it", a2a.Stop{Force: true}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, entered := hangs()
			r := reviewed(t, a, team.Config{})
			id := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
			<-entered
			r.stop(t, id, tt.stop)
			want(t, wantState(t, r.get(t, id), canceled), agent.ReasonCanceled, tt.own...)
		})
	}
	t.Run("a cancel keeps nothing", func(t *testing.T) {
		a, entered := hangs()
		r := reviewed(t, a, team.Config{})
		id := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-entered
		want(t, wantState(t, r.cancel(t, id), canceled), agent.ReasonCanceled)
	})
}
