package team_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// elsewhere is a Detacher whose tasks have ended as soon as they have begun.
type elsewhere struct {
	away
	text string // that they end with; empty: they work on
	err  error  // of a task that cannot begin
}

func (e *elsewhere) Detach(ctx context.Context, s *teamv1.Spawned) error {
	if e.err != nil {
		return e.err
	}
	return e.away.Detach(ctx, s)
}

func (e *elsewhere) Detached(context.Context, string) (*teamv1.Ended, error) {
	if e.text == "" {
		return nil, nil
	}
	return &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: agent.NewMessage(e.text)}}, nil
}

// detached is the ticket of a step that was begun as a task of its own.
func detached(scope string) string { return team.DetachedID(crashRoot, scope) }

func detaches(c *leader.CoordinatorConfig, _ *team.Config) {
	c.Async, c.OpenDelegations = true, leader.DetachOpen
}

// watchWith runs a team whose detached work goes to d.
func watchWith(t *testing.T, d agent.Detacher, tm agent.Agent) *recorded {
	t.Helper()
	r := &recorded{}
	ctx := agent.With(t.Context(), &agent.Run{Root: crashRoot, Seed: 1, Detacher: d})
	for ev, err := range tm.Process(ctx, &teamv1.ProcessRequest{AgentId: "t1", Message: agent.UserMessage("m-1", "x")}) {
		switch {
		case err != nil:
			r.err = err
		case ev.GetReply() != nil && ev.GetScope() == "":
			r.reply = ev.GetReply()
		default:
			ev.Seq, ev.Time = int64(len(r.events)+1), timestamppb.Now()
			r.events = append(r.events, ev)
		}
	}
	return r
}

func TestC_09_Detached(t *testing.T) {
	t.Run("S-23 C-09 the same task of the same member: the first ticket, and one task", func(t *testing.T) {
		for name, turns := range map[string][]any{
			"in one turn":  {calls(give("a", "x"), give("a", "x"))},
			"in two turns": {calls(give("a", "x")), calls(give("a", "x"))},
		} {
			for _, parallel := range []bool{false, true} {
				var e elsewhere
				var d diary
				m := leads(t, append(turns, says("done"))...)
				r := watchWith(t, &e, ledBy(t, m, d.crew("a"), detaches, func(c *leader.CoordinatorConfig, _ *team.Config) { c.AllowParallel = parallel }))
				if r.err != nil || len(e.begun) != 1 {
					t.Fatal(name, parallel, r.err, len(e.begun))
				}
				got := answers(m.all()[len(turns)])
				has(t, got[len(got)-1], " already, as "+detached("2"))
			}
		}
	})

	t.Run("R-002-1.3 C-09 a task that cannot begin: the leader is told so, not that it is under way", func(t *testing.T) {
		e := elsewhere{err: agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonTeamError, "there is no room")}
		var d diary
		m := leads(t, calls(give("a", "x")), says("done"))
		r := watchWith(t, &e, ledBy(t, m, d.crew("a", "b"), detaches))
		if r.err != nil || len(m.all()) != 2 {
			t.Fatal(r.err, len(m.all()))
		}
		has(t, lastSaid(m.all()[1]), "a: failed (TEAM_ERROR)", "there is no room", "b")
		r.complete(t)
	})

	t.Run("S-59 C-09 nor where its member is gone", func(t *testing.T) {
		var e elsewhere
		var d diary
		reg := d.crew("a", "b")
		m := leads(t, calls(give("a", "x")), says("done"))
		r := watchWith(t, &e, ledBy(t, m, reg, detaches, func(_ *leader.CoordinatorConfig, c *team.Config) {
			c.Registry = understaffed{reg, map[string]bool{"a": true}}
		}))
		if r.err != nil || len(e.begun) != 0 {
			t.Fatal(r.err, e.begun)
		}
		has(t, lastSaid(m.all()[1]), "a: rejected (DISABLED)")
	})

	t.Run("S-64 C-09 a long result of such a task is read on, too", func(t *testing.T) {
		e := elsewhere{text: megabyte()}
		var d diary
		var read readAll
		m := leads(t, append([]any{calls(give("a", "x")), check1("{}")}, read.turns(80)...)...)
		r := watchWith(t, &e, ledBy(t, m, d.crew("a"), detaches, func(_ *leader.CoordinatorConfig, c *team.Config) { c.Limits.MaxTurns = new(int32(200)) }))
		if r.err != nil || read.text.String() != e.text {
			t.Fatalf("%v: read %d bytes of %d", r.err, read.text.Len(), len(e.text))
		}
		if slices.Contains(offered(m.all()[1]), prompt.ReadTool) || !slices.Contains(offered(m.all()[2]), prompt.ReadTool) {
			t.Error("the tool is there when there is something to read: ", offered(m.all()[1]), offered(m.all()[2]))
		}
	})

	t.Run("R-002-22 C-14 a ticket is no result that others are handed", func(t *testing.T) {
		var e elsewhere
		var d diary
		m := leads(t, calls(give("a", "x"), give("b", "y")), says("done"))
		r := watchWith(t, &e, ledBy(t, m, d.crew("a", "b"), detaches, member("b", func(m *team.Member) { m.Async = new(bool) })))
		if r.err != nil {
			t.Fatal(r.err)
		}
		if diff := cmp.Diff([]string{"b < y"}, d.all()); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("R-004-17 C-09 skip_summarization: a ticket is no answer, the leader is asked", func(t *testing.T) {
		var e elsewhere
		var d diary
		m := leads(t, calls(give("a", "x")), says("it has begun"))
		r := watchWith(t, &e, ledBy(t, m, d.crew("a"), detaches, member("a", func(m *team.Member) { m.SkipSummarization = true })))
		if r.err != nil || r.text() != "it has begun" {
			t.Error(r.text(), r.err)
		}
	})
}

func TestC_07_WhatSpendsNothingAtTheLimit(t *testing.T) {
	one := func(_ *leader.CoordinatorConfig, c *team.Config) { c.Limits.MaxDelegations = new(int32(1)) }
	t.Run("S-23 C-07 a duplicate gets its ticket", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			m := leads(t, calls(give("a", "x")), calls(give("a", "x")), says("soon"), says("done"))
			r := watch(t.Context(), ledBy(t, m, registry{"a": d.takes("a", time.Second)}, async, one), "x")
			if r.err != nil || r.text() != "done" {
				t.Fatal(r.text(), r.err)
			}
			has(t, answers(m.all()[2])[0], "under way already, as "+first)
		})
	})
	t.Run("C-23 C-07 a first repeat is told to the leader", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "x")), calls(give("a", "x")), says("done"))
		r := watch(t.Context(), ledBy(t, m, d.crew("a"), one), "x")
		if r.err != nil || r.text() != "done" {
			t.Error(r.text(), r.err)
		}
	})
}

func TestCoordinator_HintAfterAFailure(t *testing.T) {
	fails := func(d *diary, id string) *agent.Func {
		return d.says(id, func(string) (string, error) { return "", errors.New("no") })
	}
	hint := func(answer string) string {
		_, after, _ := strings.Cut(answer, "\n\n")
		_, line, _ := strings.Cut(after, "\n")
		return line
	}
	t.Run("R-002-2.1 the others are named, and never the one that failed", func(t *testing.T) {
		var d diary
		reg := d.crew("b", "c")
		reg["a"] = fails(&d, "a")
		m := leads(t, calls(give("a", "x")), says("done"))
		watch(t.Context(), ledBy(t, m, reg), "x")
		want := "You can call it again with other words, or go on without it: use another one: b, c"
		if diff := cmp.Diff(want, hint(lastSaid(m.all()[1]))); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("R-002-2.1 S-59 one that takes no work is not to be called again, and is named to nobody", func(t *testing.T) {
		var d diary
		reg := d.crew("b", "c")
		reg["a"] = fails(&d, "a")
		m := leads(t, calls(give("b", "x")), calls(give("a", "x")), says("done"))
		watch(t.Context(), ledBy(t, m, reg, func(_ *leader.CoordinatorConfig, c *team.Config) {
			c.Registry = understaffed{reg, map[string]bool{"b": true}}
		}), "x")
		got := []string{hint(lastSaid(m.all()[1])), hint(lastSaid(m.all()[2]))}
		want := []string{
			"Go on without it: use another one: a, c",
			"You can call it again with other words, or go on without it: use another one: c",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
