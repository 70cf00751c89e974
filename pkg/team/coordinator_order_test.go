package team_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

func TestCoordinator_Sequential(t *testing.T) {
	t.Run("S-06 R-002-02 R-002-22 R-002-1.4 without allow_parallel one works after the other, and is given the first result", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.takes("a", time.Second), "b": d.takes("b", time.Second)}
			m := leads(t, calls(give("a", "first"), give("b", "second")), says("done"))
			r := watch(t.Context(), ledBy(t, m, reg), "x")
			if r.err != nil {
				t.Fatal(r.err)
			}
			if diff := cmp.Diff([]string{"a begins", "a ends", "b begins", "b ends"}, d.all()); diff != "" {
				t.Error(diff)
			}
			want := []string{"c1: a: succeeded\n\na(first)", "c2: b: succeeded\n\nb(second\nResults so far:\n\na: succeeded\n\na(first))"}
			if diff := cmp.Diff(want, answers(m.all()[1])); diff != "" {
				t.Error(diff)
			}
		})
	})

	t.Run("R-002-22 where the first failed its error stands there, and the second runs", func(t *testing.T) {
		var d diary
		reg := d.crew("b")
		reg["a"] = failing("a", agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no such book"))
		m := leads(t, calls(give("a", "first"), give("b", "second")), says("done"))
		if _, err := ask(t, ledBy(t, m, reg), "x"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"b < second\nResults so far:\n\na: failed (AGENT_NOT_FOUND)\n\nno such book"}, d.all()); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("R-002-22 R-004-16 a member that is isolated is given its task alone", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "first"), give("b", "second")), says("done"))
		tm := ledBy(t, m, d.crew("a", "b"), member("b", func(m *team.Member) { m.History = team.HistoryIsolated }))
		if _, err := ask(t, tm, "x"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a < first", "b < second"}, d.all()); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("R-004-19 two turns with a call each never overlap, also with allow_parallel", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.takes("a", time.Second), "b": d.takes("b", time.Second)}
			m := leads(t, calls(give("a", "first")), calls(give("b", "second")), says("done"))
			if _, err := ask(t, ledBy(t, m, reg, inParallel), "x"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"a begins", "a ends", "b begins", "b ends"}, d.all()); diff != "" {
				t.Error(diff)
			}
		})
	})
}

// gated are members that wait for their gates, and who works at the same time.
type gated struct {
	reg   registry
	gates map[string]chan struct{}
	atWork
}

// atWork counts members that work at the same time.
type atWork struct {
	mu        sync.Mutex
	now, peak int // guarded by mu
}

// add counts a member that begins, or with -1 one that ends.
func (w *atWork) add(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now += n
	w.peak = max(w.peak, w.now)
}

// counts returns how many work, and the most that did so far.
func (w *atWork) counts() (now, peak int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now, w.peak
}

func newGated(ids ...string) *gated {
	g := &gated{reg: registry{}, gates: map[string]chan struct{}{}}
	for _, id := range ids {
		gate := make(chan struct{})
		g.gates[id] = gate
		g.reg[id] = &agent.Func{ID: id, Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			g.add(1)
			defer g.add(-1)
			select {
			case <-gate:
				return agent.NewMessage(id + "(" + agent.Text(m) + ")"), nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}}
	}
	return g
}

func TestCoordinator_Parallel(t *testing.T) {
	five := func() []*teamv1.ToolCall {
		return []*teamv1.ToolCall{give("m1", "t1"), give("m2", "t2"), give("m3", "t3"), give("m4", "t4"), give("m5", "t5")}
	}
	inOrder := []string{"c1: m1: succeeded\n\nm1(t1)", "c2: m2: succeeded\n\nm2(t2)", "c3: m3: succeeded\n\nm3(t3)", "c4: m4: succeeded\n\nm4(t4)", "c5: m5: succeeded\n\nm5(t5)"}

	t.Run("S-07 R-002-03 R-002-24 R-002-1.4 at most 3 work; replies in the order of the calls, each under its own id", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGated("m1", "m2", "m3", "m4", "m5")
			m := leads(t, calls(five()...), says("done"))
			tm := ledBy(t, m, g.reg, inParallel)
			var r *recorded
			done := make(chan struct{})
			go func() {
				defer close(done)
				r = watch(t.Context(), tm, "x")
			}()
			for i, id := range []string{"m3", "m1", "m2", "m5", "m4"} { // m5 and m4 begin once the first have ended
				synctest.Wait()
				if now, _ := g.counts(); now != min(3, 5-i) {
					t.Errorf("before %s ends %d work, want %d", id, now, min(3, 5-i))
				}
				close(g.gates[id])
			}
			<-done
			if _, peak := g.counts(); r.err != nil || peak != 3 {
				t.Fatal(r.err, peak)
			}
			if diff := cmp.Diff(inOrder, answers(m.all()[1])); diff != "" {
				t.Error(diff)
			}
			r.complete(t)
		})
	})

	for _, tt := range []struct {
		name     string
		max      int32
		list     []*teamv1.ToolCall
		together int
	}{
		{"R-002-3.1 max_parallel beyond the calls: all of them", 5, five()[:2], 2},
		{"R-002-3.5 allow_parallel with max_parallel 1: one after the other on the same path", 1, five()[:3], 1},
		{"R-002-03 as many as max_parallel says", 4, five(), 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var working atWork
				reg := registry{}
				for i := range tt.list {
					id := fmt.Sprintf("m%d", i+1)
					reg[id] = &agent.Func{ID: id, Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
						working.add(1)
						defer working.add(-1)
						return agent.NewMessage(id + "(" + agent.Text(m) + ")"), agent.Sleep(ctx, time.Second)
					}}
				}
				m := leads(t, calls(tt.list...), says("done"))
				tm := ledBy(t, m, reg, inParallel, func(_ *leader.CoordinatorConfig, c *team.Config) { c.Limits.MaxParallel = &tt.max })
				_, err := ask(t, tm, "x")
				if _, peak := working.counts(); err != nil || peak != tt.together {
					t.Error(err, peak)
				}
				if diff := cmp.Diff(inOrder[:len(tt.list)], answers(m.all()[1])); diff != "" {
					t.Error(diff)
				}
			})
		})
	}

	t.Run("R-002-26 what one of them keeps the other does not see", func(t *testing.T) {
		reg := registry{}
		for _, id := range []string{"left", "right"} {
			reg[id] = newTeamWith(t, team.Config{ID: id, Registry: registry{"w": skilled("w")}, Members: members("w"), Scheduler: keepsState(id)})
		}
		m := leads(t, calls(give("left", "x"), give("right", "x")), says("done"))
		r := watch(t.Context(), ledBy(t, m, reg, inParallel), "x")
		want := []string{"c1: left: succeeded\n\nleft sees left", "c2: right: succeeded\n\nright sees right"}
		if diff := cmp.Diff(want, answers(m.all()[1])); diff != "" || r.err != nil {
			t.Error(diff, r.err)
		}
	})
}

// keepsState writes its name into the run's context, and answers with what it finds there.
func keepsState(id string) team.Scheduler {
	return next(func(s *team.State) (team.Decision, error) {
		if len(s.Steps) == 0 {
			d := delegateTo("w")
			d.Updates = update("name", id)
			return d, nil
		}
		return team.Decision{Reply: agent.NewMessage(id + " sees " + s.Context["name"].GetStringValue())}, nil
	})
}
