package team_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

func TestCoordinator_Failures(t *testing.T) {
	three := calls(give("a", "1"), give("b", "2"), give("c", "3"))

	t.Run("S-08 R-002-3.2 R-002-25 one of three fails: two results and an error, and the run succeeds", func(t *testing.T) {
		var d diary
		reg := d.crew("a", "c")
		tries := 0
		reg["b"] = d.says("b", func(string) (string, error) { tries++; return "", unavailable() })
		m := leads(t, three, says("all is well"))
		r := watch(t.Context(), ledBy(t, m, reg, inParallel), "x")
		if r.err != nil || r.text() != "all is well" || tries != 3 {
			t.Fatal(r.text(), r.err, tries)
		}
		got := answers(m.all()[1])
		if got[0] != "c1: a: succeeded\n\na(1)" || got[2] != "c3: c: succeeded\n\nc(3)" {
			t.Error(got)
		}
		has(t, got[1], "c2: b: failed (UNAVAILABLE)", "the endpoint answered 500", "a, c")
		if diff := cmp.Diff([]string{"2 a: succeeded", "3 b: failed UNAVAILABLE", "4 c: succeeded"}, r.delegations()); diff != "" {
			t.Error(diff)
		}
		r.complete(t)
	})

	t.Run("S-09 R-002-3.3 R-002-34 all fail: the leader sees each error, and its answer is returned", func(t *testing.T) {
		reg := registry{}
		for _, id := range []string{"a", "b", "c"} {
			reg[id] = failing(id, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "%s has no idea", id))
		}
		m := leads(t, three, says("sorry"))
		r := watch(t.Context(), ledBy(t, m, reg, inParallel), "x")
		if r.err != nil || r.text() != "sorry" {
			t.Fatal(r.text(), r.err)
		}
		for i, text := range answers(m.all()[1]) {
			id := string(rune('a' + i))
			has(t, text, fmt.Sprintf("c%d: %s: failed", i+1, id), id+" has no idea")
		}
	})

	t.Run("R-002-2.3 a member that crashes is an error for the leader, and is not repeated", func(t *testing.T) {
		n := 0
		reg := registry{"a": &agent.Func{ID: "a", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { n++; panic("no") }}}
		m := leads(t, calls(give("a", "x")), says("done"))
		r := watch(t.Context(), ledBy(t, m, reg), "x")
		if r.err != nil || r.text() != "done" || n != 1 {
			t.Error(r.text(), r.err, n)
		}
		has(t, answers(m.all()[1])[0], "c1: a: failed (AGENT_PANIC)")
	})

	t.Run("S-17 R-002-2.4 an empty reply: a placeholder, and the delegation is EMPTY", func(t *testing.T) {
		reg := registry{"a": failing("a", nil)}
		reg["a"] = &agent.Func{ID: "a", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { return agent.NewMessage(""), nil }}
		m := leads(t, calls(give("a", "x")), says("done"))
		r := watch(t.Context(), ledBy(t, m, reg), "x")
		if diff := cmp.Diff([]string{"c1: a: empty\n\n(member returned no content)"}, answers(m.all()[1])); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"2 a: empty"}, r.delegations()); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("R-002-8.1 S-10 retries are attempts of one delegation: one error when they are used up, no cycle", func(t *testing.T) {
		n := 0
		reg := registry{"a": &agent.Func{ID: "a", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { n++; return nil, unavailable() }}}
		m := leads(t, calls(give("a", "x")), says("done"))
		r := watch(t.Context(), ledBy(t, m, reg), "x")
		if n != 3 || r.starts("2") != 3 || len(answers(m.all()[1])) != 1 {
			t.Error(n, r.starts("2"), answers(m.all()[1]))
		}
		r.complete(t)
	})

	t.Run("C-06 on_member_error FAIL: the first failure is the run's", func(t *testing.T) {
		reg := registry{"a": failing("a", agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no such book"))}
		r := watch(t.Context(), ledBy(t, leads(t, calls(give("a", "x"))), reg, func(_ *leader.CoordinatorConfig, c *team.Config) { c.ReportErrors = false }), "x")
		wantReason(t, r.err, agent.ReasonAgentNotFound)
	})

	t.Run("C-06 R-002-1.3 with FAIL a call that cannot be run still goes back to the leader", func(t *testing.T) {
		var d diary
		m := leads(t, calls(tool("delegate_to_a", "{}"), give("a", "x"), give("a", "x"), give("nobody", "x")), says("done"))
		r := watch(t.Context(), ledBy(t, m, d.crew("a"), func(_ *leader.CoordinatorConfig, c *team.Config) { c.ReportErrors = false }), "x")
		if r.err != nil || r.text() != "done" || len(d.all()) != 1 {
			t.Error(r.text(), r.err, d.all())
		}
	})
}

func TestCoordinator_Time(t *testing.T) {
	t.Run("R-002-06 R-002-23 a member has 60 s; then the leader goes on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			m := leads(t, calls(give("a", "x")), says("without it"))
			r := watch(t.Context(), ledBy(t, m, registry{"a": stuck("a")}), "x")
			if r.err != nil || r.text() != "without it" || time.Since(begin) != time.Minute {
				t.Error(r.text(), r.err, time.Since(begin))
			}
			has(t, answers(m.all()[1])[0], "c1: a: timed_out (TIMEOUT_EXCEEDED)")
			if diff := cmp.Diff([]string{"2 a: timed_out TIMEOUT_EXCEEDED"}, r.delegations()); diff != "" {
				t.Error(diff)
			}
			r.complete(t)
		})
	})

	t.Run("R-002-8.2 the time stands around all tries", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int64
			reg := registry{"a": &agent.Func{ID: "a", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
				if n.Add(1) == 1 {
					return nil, unavailable()
				}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}}}
			begin := time.Now()
			m := leads(t, calls(give("a", "x")), says("done"))
			r := watch(t.Context(), ledBy(t, m, reg, member("a", func(m *team.Member) { m.Timeout = 2 * time.Second })), "x")
			if n.Load() != 2 || time.Since(begin) != 2*time.Second || r.delegations()[0] != "2 a: timed_out TIMEOUT_EXCEEDED" {
				t.Error(n.Load(), time.Since(begin), r.delegations())
			}
		})
	})

	t.Run("R-002-05 R-002-3.4 R-002-8.3 R-002-31 the run has 300 s: what works is ended, what has ended is kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.takes("a", time.Second), "b": d.takes("b", time.Hour), "c": d.takes("c", time.Hour)}
			begin := time.Now()
			m := leads(t, func(*agent.ModelRequest) *teamv1.Turn {
				time.Sleep(time.Second) // the bubble's; so the members' own time ends after the run's
				return calls(give("a", "1"), give("b", "2"), give("c", "3"))
			})
			r := watch(t.Context(), ledBy(t, m, reg, inParallel, func(_ *leader.CoordinatorConfig, c *team.Config) {
				c.Limits.MemberTimeout = durationpb.New(time.Hour)
			}), "x")
			has(t, wantReason(t, r.err, agent.ReasonTimeout).Message, `team "t1"`, "5m0s", "limits.timeout")
			if time.Since(begin) != 300*time.Second {
				t.Error(time.Since(begin))
			}
			synctest.Wait() // for those that were left behind
			slices.Sort(d.calls)
			if diff := cmp.Diff([]string{"a begins", "a ends", "b begins", "b is ended", "c begins", "c is ended"}, d.calls); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"2 a: succeeded", "3 b: timed_out TIMEOUT_EXCEEDED", "4 c: timed_out TIMEOUT_EXCEEDED"}, r.delegations()); diff != "" {
				t.Error(diff)
			}
			r.complete(t)
		})
	})

	t.Run("R-002-11.1 R-002-8.3 when the time is over no member of a batch begins", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			late := func(*agent.ModelRequest) *teamv1.Turn {
				time.Sleep(6 * time.Minute) // the bubble's time: a model that does not look at its context
				return calls(give("a", "1"), give("b", "2"))
			}
			r := watch(t.Context(), ledBy(t, leads(t, late), d.crew("a", "b"), inParallel), "x")
			wantReason(t, r.err, agent.ReasonTimeout)
			if len(d.all()) != 0 || len(r.delegations()) != 0 {
				t.Error(d.all(), r.delegations())
			}
		})
	})

	t.Run("R-002-5.1 member_timeout is never more than the run's", func(t *testing.T) {
		l := team.MemberTimeoutOf(&teamv1.Limits{Timeout: durationpb.New(time.Minute), MemberTimeout: durationpb.New(2 * time.Minute)})
		if l != time.Minute {
			t.Error(l)
		}
	})
}
