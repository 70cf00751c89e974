package team_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"go.uber.org/goleak"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// guarded is a middleware with an effect outside that adds its name to what it
// sees. What it says is on record, or it is asked with all before it durable.
func (w *world) guarded(name string, fails bool) agent.Guard {
	return agent.Guard{Middleware: &ware{name, &diary{}, func(_ context.Context, p *agent.Passing) (agent.Verdict, error) {
		w.consulted(name, p.Key)
		if fails {
			return agent.Verdict{}, agent.Errorf(0, "", "it is down")
		}
		return agent.Verdict{Message: agent.NewMessage(agent.Text(p.Message) + "+" + name)}, nil
	}}}
}

// consulted is the effect of a middleware. The team works on one thing at a
// time, so that all that is on record has led to it.
func (w *world) consulted(name, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.effects[name]++
	if w.committed != len(w.events) && !w.dead {
		w.faults = append(w.faults, fmt.Sprintf("%s: asked before what led to it was durable", name))
	}
	looked := map[string]int64{}
	for _, ev := range w.events {
		c := ev.GetChecked()
		if c == nil {
			continue
		}
		kind := fmt.Sprintf("check/%s/%d", team.StageWord(c.GetStage()), c.GetRef())
		n := looked[ev.GetScope()+" "+kind] + 1
		looked[ev.GetScope()+" "+kind] = n
		if (&agent.Run{Root: crashRoot}).ID(ev.GetScope(), kind, n) == key {
			w.faults = append(w.faults, fmt.Sprintf("%s: on record in scope %q and asked again", name, ev.GetScope()))
		}
	}
}

// guardedTeam has middlewares everywhere: nested, around members and a model,
// and for what people answer.
func guardedTeam(t *testing.T, w *world) *team.Team {
	t.Helper()
	lists := func(name string) agent.Guards {
		return agent.Guards{
			Input:  []agent.Guard{w.guarded(name+"1", false), w.guarded("broken", true), w.guarded(name+"2", false)},
			Output: []agent.Guard{w.guarded(name+"3", false), w.guarded(name+"4", false)},
		}
	}
	around := func(g agent.Guards, name string) agent.Guards {
		g.Delegation = []agent.Guard{w.guarded(name+"5", false), w.guarded(name+"6", false)}
		g.Result = []agent.Guard{w.guarded("broken", true), w.guarded(name+"7", false)}
		return g
	}
	reg := registry{"a": &worker{w: w, name: "a"}, "b": &worker{w: w, name: "b"}}
	m, err := leader.NewAgent(leader.AgentConfig{ID: "m", Model: &fakeModel{w}, Tools: []agent.Tool{&clockTool{w}}, Guards: lists("m")})
	if err != nil {
		t.Fatal(err)
	}
	reg["m"] = m
	reg["inner"] = newTeamWith(t, team.Config{
		ID: "inner", Registry: reg, Members: members("b", "m"), Scheduler: &script{batches: [][]string{{"b"}, {"m"}}}, Guards: around(lists("i"), "i"),
	})
	return newTeamWith(t, team.Config{
		ID: "root", Registry: reg, Members: members("a", "inner"), Scheduler: &script{batches: [][]string{{"a"}, {"inner"}, {"?"}}}, Guards: around(lists("r"), "r"),
	})
}

// liveGuarded is live with the guarded team.
func (w *world) liveGuarded() (done bool) {
	top := guardedTeam(w.t, w)
	r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return top, nil }, Replica: "r"}
	for {
		park, err := r.Drive(w.t.Context(), runs.Claim{Root: crashRoot, Epoch: 1, Journal: w})
		switch {
		case err != nil && !w.dead:
			w.t.Fatalf("drive: %v", err)
		case err != nil:
			return false
		case park.Done:
			return true
		}
		w.answer()
	}
}

// verifyGuarded checks a finished run and returns its answer.
func (w *world) verifyGuarded(baseline string) string {
	w.t.Helper()
	for _, f := range w.faults {
		w.t.Error(f)
	}
	if bad := unended(w.events); len(bad) > 0 {
		w.t.Error("I1: ", bad)
	}
	end := w.events[len(w.events)-1].GetEnded()
	text := fmt.Sprintf("%s %d warnings: %s", end.GetOutcome(), len(end.GetWarnings()),
		agent.Text(journal.MessageOf(crashRoot, w.events[max(end.GetReplyRef(), 1)-1])))
	if baseline != "" && text != baseline {
		w.t.Errorf("the result differs:\n%s\n%s", text, baseline)
	}
	return text
}

// TestCrash_Guarded crashes a team with middlewares everywhere at every event:
// what they said is never asked again, the result is always the same (R-002-08).
func TestCrash_Guarded(t *testing.T) {
	defer goleak.VerifyNone(t)
	w := newWorld(t)
	if !w.liveGuarded() {
		t.Fatal("did not end")
	}
	n, baseline := len(w.events), w.verifyGuarded("")
	for _, part := range []string{"OUTCOME_SUCCEEDED 8 warnings: ", "a(tides+r1+r2+r5+r6)+r7", "+i1+i2", "+m3+m4", "+i3+i4+r7", "+r3+r4"} {
		if !strings.Contains(baseline, part) {
			t.Fatalf("%q lacks %s", baseline, part)
		}
	}
	if got := len(looks(w.events)); got != 34 {
		t.Errorf("%d looks are on record", got)
	}
	crashes := 0
	crash := func(w *world, next func() (budget int, lose bool)) {
		var lose bool
		w.budget, lose = next()
		for !w.liveGuarded() {
			crashes++
			w.crash(lose)
			w.budget, lose = next()
		}
		w.verifyGuarded(baseline)
	}
	for _, lose := range []bool{false, true} {
		for at := range n + 4 {
			first := true
			crash(newWorld(t), func() (int, bool) {
				if !first {
					return -1, lose
				}
				first = false
				return at, lose
			})
		}
	}
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 7))
		crash(newWorld(t), func() (int, bool) { return 5 + random.IntN(25), random.IntN(2) == 0 })
	}
	t.Logf("%d crashes in runs of about %d events", crashes, n)
	if crashes < 2*n {
		t.Errorf("only %d crashes", crashes)
	}
}

// TestCrash_Barred crashes where a guardrail has stopped a message: it stays
// stopped, and nobody is asked again.
func TestCrash_Barred(t *testing.T) {
	for name, place := range map[string]func(*agent.Guards, agent.Guard){
		"input":      func(g *agent.Guards, x agent.Guard) { g.Input = []agent.Guard{x} },
		"output":     func(g *agent.Guards, x agent.Guard) { g.Output = []agent.Guard{x} },
		"delegation": func(g *agent.Guards, x agent.Guard) { g.Delegation = []agent.Guard{x} },
		"result":     func(g *agent.Guards, x agent.Guard) { g.Result = []agent.Guard{x} },
	} {
		t.Run(name, func(t *testing.T) {
			var guards agent.Guards
			var w wares
			var d diary
			place(&guards, w.blocks("x", "no"))
			tm := newTeamWith(t, team.Config{ID: "root", Scheduler: inOrder("a"), Members: members("a"), Registry: d.crew("a"), Guards: guards})
			r := newRecord()
			r.process(t.Context(), tm, nil)
			for i := range len(r.events) + 1 {
				again := newRecord()
				again.events = append([]*teamv1.Event{}, r.events[:i]...)
				w.calls = nil
				again.process(t.Context(), tm, nil)
				if e := wantReason(t, again.err, agent.ReasonGuardrailBlocked); e.Error() != agent.AsError(r.err).Error() {
					t.Errorf("after %d events: %v", i, e)
				}
				if asked, known := len(w.all()), len(looks(r.events[:i])); asked+known != 1 {
					t.Errorf("after %d events: asked %d times, with %d looks on record", i, asked, known)
				}
				if bad := unended(again.events); len(bad) > 0 {
					t.Errorf("after %d events: %v", i, bad)
				}
			}
		})
	}
}
