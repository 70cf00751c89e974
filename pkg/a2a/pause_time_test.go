package a2a_test

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// taking is a member that takes its time.
func taking(id string, d time.Duration) *agent.Func {
	return &agent.Func{ID: id, Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		if err := agent.Sleep(ctx, d); err != nil {
			return nil, err
		}
		return agent.NewMessage(id + "(" + agent.Text(m) + ")"), nil
	}}
}

// hurried is an agent that keeps how much time it was told that it has.
type hurried struct {
	agent.Agent
	left []time.Duration
}

func (a *hurried) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	a.left = append(a.left, time.Until(req.GetDeadline().AsTime()))
	return a.Agent.Process(ctx, req)
}

func within(timeout time.Duration) *teamv1.Limits {
	return &teamv1.Limits{Timeout: durationpb.New(timeout), MemberTimeout: durationpb.New(timeout)}
}

// C-15, S-44: the time that a run stands still counts for no deadline: not for its
// caller's, its teams' or its members'.
func TestC_15_PausedTimeDoesNotCount(t *testing.T) {
	in := func(name string, story func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, story) })
	}
	in("of a run that has parked", func(t *testing.T) {
		r := start(t, taking("first", 10*time.Second), taking("second", 30*time.Second))
		r.newTeamOf(t, teamConfig("inner", through("first", "second"), within(50*time.Second)), "first", "second")
		r.newTeamOf(t, teamConfig("team", through("inner"), within(55*time.Second)), "inner")
		id := r.begin(t, a2a.Start{Agent: "team", Brief: someBrief(), Deadline: time.Now().Add(55 * time.Second)})
		for range 2 { // the second time while nothing new could begin
			time.Sleep(5 * time.Second)
			r.pause(t, id)
			r.parked(t, id)
			time.Sleep(time.Hour)
			r.resume(t, id)
		}
		if got := answer(t, r.until(t, id, completed)); got != "second(first(Write about the sea.))" {
			t.Errorf("the answer is %q", got)
		}
	})
	for name, stands := range map[string]time.Duration{"resumed while it works": 5 * time.Minute, "resumed when it has parked": time.Hour} {
		in("of a branch that stands while another one works, "+name, func(t *testing.T) {
			r := start(t, taking("first", 10*time.Second), taking("second", 30*time.Second), taking("long", 10*time.Minute))
			r.newTeamOf(t, teamConfig("inner", through("first", "second"), within(50*time.Second)), "first", "second")
			c := teamConfig("team", together("inner", "long"), within(time.Hour))
			c.Registry, c.Members = r.agents, []team.Member{{Agent: "inner"}, {Agent: "long", Timeout: time.Hour}}
			tm, err := team.New(c)
			if err != nil {
				t.Fatal(err)
			}
			r.add(t, tm)
			id := r.send(t, ann(t), atOnce(message("team", "x"))).GetId()
			time.Sleep(5 * time.Second)
			r.pause(t, id)
			time.Sleep(stands)
			r.resume(t, id)
			task := r.until(t, id, completed)
			wantState(t, r.get(t, task.GetId()+"~1"), completed)
		})
	}
	in("between two attempts: it parks at once, and goes on when it is resumed", func(t *testing.T) {
		var calls atomic.Int32
		flaky := &agent.Func{ID: "flaky", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			if calls.Add(1) == 1 {
				return nil, &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Fresh: true, RetryAfter: 30 * time.Second, Message: "busy"}
			}
			return agent.NewMessage("done"), nil
		}}
		r := start(t, flaky)
		r.newTeamOf(t, teamConfig("team", through("flaky"), within(50*time.Second)), "flaky")
		id := r.send(t, ann(t), atOnce(message("team", "x"))).GetId()
		time.Sleep(5 * time.Second)
		r.pause(t, id)
		before := time.Now()
		r.parked(t, id)
		if took := time.Since(before); took > time.Second {
			t.Errorf("it took %s to park", took)
		}
		time.Sleep(time.Hour)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls while it was paused", n)
		}
		r.resume(t, id)
		r.until(t, id, completed)
		r.wantGate(t, id)
	})
	limited := func(most time.Duration) a2a.Start {
		b := someBrief()
		b.MaxDuration = durationpb.New(most)
		return a2a.Start{Agent: "team", Brief: b, Deadline: time.Now().Add(most)}
	}
	in("of a collaboration whose member works on, whether it parks or is resumed before", func(t *testing.T) {
		for _, pause := range []time.Duration{30 * time.Second, time.Hour} {
			r := start(t, taking("slow", 50*time.Second), taking("last", 4*time.Second))
			inner := teamConfig("inner", through("slow"), nil) // the time of the collaboration is also that of its teams
			r.newTeamOf(t, inner, "slow")
			r.newTeam(t, "team", through("inner", "last"), "inner", "last")
			id := r.begin(t, limited(25*time.Second))
			time.Sleep(5 * time.Second)
			r.pause(t, id)
			time.Sleep(pause)
			r.resume(t, id)
			r.until(t, id, completed) // 5 s and what was left of the member's work, then 4 s
			r.wantGate(t, id)
		}
	})
	in("of a collaboration whose time runs out after it: not a second more is left", func(t *testing.T) {
		r := start(t, taking("slow", 50*time.Second))
		r.newTeam(t, "team", through("slow"), "slow")
		id, began := r.begin(t, limited(25*time.Second)), time.Now()
		time.Sleep(5 * time.Second)
		r.pause(t, id)
		time.Sleep(20 * time.Second)
		r.resume(t, id)
		r.until(t, id, failed)
		if took := time.Since(began).Round(time.Second); took != 45*time.Second {
			t.Errorf("it ended after %s, want 45s", took)
		}
	})
	in("of a collaboration that is driven again later, from what is on record", func(t *testing.T) {
		r := start(t, taking("slow", 50*time.Second), script(t, "asks", ask("which?"), say("{{answer}}")), taking("last", 4*time.Second))
		r.newTeamOf(t, teamConfig("inner", through("slow", "asks", "last"), nil), "slow", "asks", "last")
		r.newTeam(t, "team", through("inner"), "inner")
		id := r.begin(t, limited(25*time.Second))
		time.Sleep(5 * time.Second)
		r.pause(t, id)
		time.Sleep(30 * time.Second)
		r.resume(t, id)
		r.until(t, id, inputRequired)
		time.Sleep(time.Hour)
		r.send(t, ann(t), reply(id, "blue"))
		r.until(t, id, completed)
	})
	in("and an agent, which may be on another server, is told of the time that is left", func(t *testing.T) {
		a := &hurried{Agent: script(t, "asks", ask("which?"), say("{{answer}}"))}
		r := start(t, a)
		id := r.begin(t, a2a.Start{Agent: "asks", Brief: someBrief(), Deadline: time.Now().Add(time.Minute)})
		r.until(t, id, inputRequired)
		r.pause(t, id)
		time.Sleep(time.Hour)
		r.send(t, ann(t), atOnce(reply(id, "blue")))
		time.Sleep(time.Hour)
		r.resume(t, id)
		r.until(t, id, completed)
		if want := []time.Duration{time.Minute, time.Minute}; !slices.Equal(a.left, want) {
			t.Errorf("it was told of %v, want %v", a.left, want)
		}
	})
	in("of a task that waits for people, whose question lapses as it would have", func(t *testing.T) {
		r := start(t, script(t, "asks", ask("which?"), say("{{answer}}")))
		r.newTeam(t, "team", through("asks"), "asks")
		id := wantState(t, r.send(t, ann(t), message("team", "hi")), inputRequired).GetId()
		r.pause(t, id)
		time.Sleep(8 * 24 * time.Hour)
		wantState(t, r.get(t, id), working)
		r.resume(t, id)
		r.until(t, id, failed)
	})
}
