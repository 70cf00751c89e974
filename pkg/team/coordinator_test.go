package team

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestCoordinator_Answers(t *testing.T) {
	t.Run("S-04 R-002-1.1 R-003-10 C-05 a direct answer: one model call, no delegation", func(t *testing.T) {
		var d diary
		m := leads(t, says("Hi"))
		r := watch(t.Context(), ledBy(t, m, d.crew("writer")), "Hello")
		if r.err != nil || r.text() != "Hi" || len(m.all()) != 1 || len(d.all()) != 0 || len(r.delegations()) != 0 {
			t.Error(r.text(), r.err, d.all(), r.delegations())
		}
	})

	t.Run("S-05 R-004-02 R-003-01 R-002-39 one delegation, and the leader writes the answer; the other member is not called", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("writer", "poem")), says("Here it is."))
		r := watch(t.Context(), ledBy(t, m, d.crew("critic", "writer")), "A poem, please")
		if r.err != nil || r.text() != "Here it is." {
			t.Error(r.text(), r.err)
		}
		if diff := cmp.Diff([]string{"writer < poem"}, d.all()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"c1: writer: succeeded\n\nwriter(poem)"}, answers(m.all()[1])); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"2 writer: succeeded"}, r.delegations()); diff != "" {
			t.Error(diff)
		}
		r.complete(t)
	})

	t.Run("R-004-03 the leader's events carry the team's name", func(t *testing.T) {
		var d diary
		r := watch(t.Context(), ledBy(t, leads(t, calls(give("writer", "x")), says("done")), d.crew("writer")), "x")
		for _, ev := range r.events {
			if want := map[bool]string{true: "t1/writer", false: "t1"}[ev.GetScope() == "2"]; ev.GetAgent() != want {
				t.Errorf("%s is of %q, want %q", ev, ev.GetAgent(), want)
			}
		}
	})

	t.Run("C-05 R-000-19 a leader without a text has not answered", func(t *testing.T) {
		var d diary
		for _, turn := range []*teamv1.Turn{says(""), says(" \n")} {
			_, err := ask(t, ledBy(t, leads(t, turn), d.crew("writer")), "x")
			has(t, wantReason(t, err, agent.ReasonNoResponse).Message, `team "t1"`)
		}
		_, err := ask(t, ledBy(t, leads(t, calls(give("writer", "x")), says("")), d.crew("writer")), "x")
		wantReason(t, err, agent.ReasonNoResponse)
	})

	t.Run("R-003-09 without an enabled member the leader works alone", func(t *testing.T) {
		var d diary
		m := leads(t, says("I do it."))
		tm := ledBy(t, m, d.crew("writer"), member("writer", func(m *Member) { m.Disabled = true }), func(c *CoordinatorConfig, _ *Config) { c.Instructions = "Be kind." })
		if answer, err := ask(t, tm, "x"); err != nil || answer != "I do it." {
			t.Error(answer, err)
		}
		if req := m.all()[0]; len(req.Tools) != 0 || req.Instructions != "Be kind." {
			t.Error(offered(req), req.Instructions)
		}
		m = leads(t, says("Nobody there."))
		if answer, err := ask(t, ledBy(t, m, registry{}), "x"); err != nil || answer != "Nobody there." || len(m.all()[0].Tools) != 0 {
			t.Error("no members at all: ", answer, err)
		}
	})
}

func TestCoordinator_TellsTheLeader(t *testing.T) {
	var d diary
	reg := d.crew("draw", "write", "off")
	reg["write"] = &agent.Func{ID: "write", Description: "Writes texts", Call: d.says("write", func(s string) (string, error) { return s, nil }).Call}
	m := leads(t, calls(tool("echo", `{"a":1}`)), says("ok"))
	tm := ledBy(t, m, reg, member("off", func(m *Member) { m.Disabled = true }), member("draw", func(m *Member) {
		m.Description, m.Role = "Draws pictures", "artist"
	}), member("write", func(m *Member) { m.Priority = 5 }), func(c *CoordinatorConfig, cfg *Config) {
		c.Instructions, c.Tools, cfg.Name = "Be brief.", []agent.Tool{echoTool{}}, "Studio"
	})
	if _, err := ask(t, tm, "x"); err != nil {
		t.Fatal(err)
	}
	req := m.all()[0]

	t.Run("R-002-15 R-004-05 the prompt has the instructions, and every enabled member with what it does", func(t *testing.T) {
		has(t, req.Instructions, "Be brief.", `"Studio"`, "- draw (artist): Draws pictures", "- write: Writes texts")
		if strings.Contains(req.Instructions, "off") {
			t.Error("it names the disabled member: ", req.Instructions)
		}
	})
	t.Run("R-002-09 the highest priority comes first", func(t *testing.T) {
		if strings.Index(req.Instructions, "- draw") < strings.Index(req.Instructions, "- write") {
			t.Error(req.Instructions)
		}
		if got := offered(req); got[0] != "delegate_to_write" {
			t.Error(got)
		}
	})
	t.Run("R-003-07 R-003-16 C-08 each enabled member is a tool, beside the leader's own", func(t *testing.T) {
		if diff := cmp.Diff([]string{"delegate_to_write", "delegate_to_draw", "echo"}, offered(req)); diff != "" {
			t.Error(diff)
		}
		has(t, req.Tools[0].Description, "write", "Writes texts")
	})
	t.Run("R-003-16 the leader's own tool runs on the same path", func(t *testing.T) {
		if got := answers(m.all()[1]); got[0] != `c1: {"a":1}` {
			t.Error(got)
		}
	})
	t.Run("R-004-05 without instructions there are the tools all the same", func(t *testing.T) {
		m := leads(t, says("ok"))
		if _, err := ask(t, ledBy(t, m, d.crew("write")), "x"); err != nil || !slices.Contains(offered(m.all()[0]), "delegate_to_write") {
			t.Error(offered(m.all()[0]), err)
		}
	})
	t.Run("R-002-2.5 S-54 a member's tools are not the leader's, nor the other way round", func(t *testing.T) {
		mind := leads(t, calls(tool("echo", "{}")), says("used it"))
		a, err := NewModelAgent(ModelAgentConfig{ID: "mind", Model: mind, Tools: []agent.Tool{echoTool{}}})
		if err != nil {
			t.Fatal(err)
		}
		m := leads(t, calls(give("mind", "x")), says("done"))
		if _, err := ask(t, ledBy(t, m, registry{"mind": a}), "x"); err != nil {
			t.Fatal(err)
		}
		if got := answers(m.all()[1]); got[0] != "c1: mind: succeeded\n\nused it" || slices.Contains(offered(m.all()[0]), "echo") {
			t.Error(got, offered(m.all()[0]))
		}
		if diff := cmp.Diff([]string{"echo"}, offered(mind.all()[0])); diff != "" {
			t.Error(diff)
		}
	})
}

// TestS_54_LeastPrivilege has a member that calls what is its leader's: members,
// the leader's tool, tickets, a hand-over. It is told that there is no such tool,
// and nothing is run.
func TestS_54_LeastPrivilege(t *testing.T) {
	var d diary
	mind := leads(t, calls(give("writer", "do my work"), tool("writer", `{"task":"x"}`), tool("delegate_task_to_member", `{"member_id":"writer","task":"x"}`),
		tool("echo", "{}"), tool(checkTool, "{}"), tool(readTool, `{"id":"1","offset":0}`), tool(transferTool, `{"agent_name":"writer"}`)), says("alone then"))
	a, err := NewModelAgent(ModelAgentConfig{ID: "mind", Model: mind})
	if err != nil {
		t.Fatal(err)
	}
	reg := d.crew("writer")
	reg["mind"] = a
	m := leads(t, calls(give("mind", "x")), says("done"))
	r := watch(t.Context(), ledBy(t, m, reg, func(c *CoordinatorConfig, _ *Config) { c.Tools, c.Async = []agent.Tool{echoTool{}}, false }), "x")
	if r.err != nil || len(d.all()) != 0 || len(mind.all()) != 2 {
		t.Fatal(r.err, d.all())
	}
	if len(mind.all()[0].Tools) != 0 {
		t.Error(offered(mind.all()[0]))
	}
	got := answers(mind.all()[1])
	if len(got) != 7 {
		t.Fatal(got)
	}
	for _, text := range got {
		has(t, text, "there is no tool")
	}
	if len(r.noted("TOOL_CALL_IGNORED")) != 7 {
		t.Error(r.noted("TOOL_CALL_IGNORED"))
	}
}

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
		tm := ledBy(t, m, d.crew("a", "b"), member("b", func(m *Member) { m.History = HistoryIsolated }))
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
	now   atomic.Int32
	peak  atomic.Int32
}

func newGated(ids ...string) *gated {
	g := &gated{reg: registry{}, gates: map[string]chan struct{}{}}
	for _, id := range ids {
		gate := make(chan struct{})
		g.gates[id] = gate
		g.reg[id] = &agent.Func{ID: id, Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			if n := g.now.Add(1); n > g.peak.Load() {
				g.peak.Store(n)
			}
			defer g.now.Add(-1)
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
				if want := int32(min(3, 5-i)); g.now.Load() != want {
					t.Errorf("before %s ends %d work, want %d", id, g.now.Load(), want)
				}
				close(g.gates[id])
			}
			<-done
			if r.err != nil || g.peak.Load() != 3 {
				t.Fatal(r.err, g.peak.Load())
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
		together int32
	}{
		{"R-002-3.1 max_parallel beyond the calls: all of them", 5, five()[:2], 2},
		{"R-002-3.5 allow_parallel with max_parallel 1: one after the other on the same path", 1, five()[:3], 1},
		{"R-002-03 as many as max_parallel says", 4, five(), 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var now, peak atomic.Int32
				reg := registry{}
				for i := range tt.list {
					id := fmt.Sprintf("m%d", i+1)
					reg[id] = &agent.Func{ID: id, Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
						peak.Store(max(peak.Load(), now.Add(1)))
						defer now.Add(-1)
						return agent.NewMessage(id + "(" + agent.Text(m) + ")"), agent.Sleep(ctx, time.Second)
					}}
				}
				m := leads(t, calls(tt.list...), says("done"))
				tm := ledBy(t, m, reg, inParallel, func(_ *CoordinatorConfig, c *Config) { c.Limits.MaxParallel = &tt.max })
				if _, err := ask(t, tm, "x"); err != nil || peak.Load() != tt.together {
					t.Error(err, peak.Load())
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
			reg[id] = newTeamWith(t, Config{ID: id, Registry: registry{"w": skilled("w")}, Members: members("w"), Scheduler: keepsState(id)})
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
func keepsState(id string) Scheduler {
	return next(func(s *State) (Decision, error) {
		if len(s.Steps) == 0 {
			d := delegateTo("w")
			d.Updates = update("name", id)
			return d, nil
		}
		return Decision{Reply: agent.NewMessage(id + " sees " + s.Context["name"].GetStringValue())}, nil
	})
}

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
		r := watch(t.Context(), ledBy(t, leads(t, calls(give("a", "x"))), reg, func(_ *CoordinatorConfig, c *Config) { c.ReportErrors = false }), "x")
		wantReason(t, r.err, agent.ReasonAgentNotFound)
	})

	t.Run("C-06 R-002-1.3 with FAIL a call that cannot be run still goes back to the leader", func(t *testing.T) {
		var d diary
		m := leads(t, calls(tool("delegate_to_a", "{}"), give("a", "x"), give("a", "x"), give("nobody", "x")), says("done"))
		r := watch(t.Context(), ledBy(t, m, d.crew("a"), func(_ *CoordinatorConfig, c *Config) { c.ReportErrors = false }), "x")
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
			r := watch(t.Context(), ledBy(t, m, reg, member("a", func(m *Member) { m.Timeout = 2 * time.Second })), "x")
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
			r := watch(t.Context(), ledBy(t, m, reg, inParallel, func(_ *CoordinatorConfig, c *Config) {
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
		l := effective(&teamv1.Limits{Timeout: durationpb.New(time.Minute), MemberTimeout: durationpb.New(2 * time.Minute)})
		if l.memberTimeout != time.Minute {
			t.Error(l.memberTimeout)
		}
	})
}

func TestCoordinator_Limits(t *testing.T) {
	always := func() (m *scriptedLead, n *int) {
		m, n = leads(t), new(int)
		for range 40 {
			m.turns = append(m.turns, func(req *agent.ModelRequest) *teamv1.Turn {
				if len(req.Tools) == 0 {
					return says("what I have")
				}
				*n++
				return calls(give("a", fmt.Sprint("task ", *n)))
			})
		}
		return m, n
	}

	t.Run("S-13 R-002-04 R-002-10.1 C-07 a leader that delegates for ever: 10 delegations, then MAX_DELEGATIONS_EXCEEDED", func(t *testing.T) {
		var d diary
		m, _ := always()
		r := watch(t.Context(), ledBy(t, m, d.crew("a")), "x")
		has(t, wantReason(t, r.err, agent.ReasonMaxDelegations).Message, `team "t1"`, "10", "limits.max_delegations")
		if len(d.all()) != 10 || len(r.delegations()) != 11 || r.delegations()[1] != "12 a: succeeded" {
			t.Error(d.all(), r.delegations())
		}
		r.complete(t)
	})

	t.Run("S-13 on_limit FINALIZE: one turn without tools, and its text is the answer", func(t *testing.T) {
		var d diary
		m, _ := always()
		r := watch(t.Context(), ledBy(t, m, d.crew("a"), func(c *CoordinatorConfig, _ *Config) { c.OnLimit = Finalize }), "x")
		if r.err != nil || r.text() != "what I have" || len(d.all()) != 10 {
			t.Error(r.text(), r.err, d.all())
		}
		last := m.all()[len(m.all())-1]
		if len(last.Tools) != 0 {
			t.Error(offered(last))
		}
		has(t, lastSaid(last), "A limit is reached")
	})

	t.Run("S-13 FINALIZE that answers with nothing is NO_RESPONSE", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "1"), give("a", "2")), says(""))
		r := watch(t.Context(), ledBy(t, m, d.crew("a"), func(c *CoordinatorConfig, cfg *Config) {
			c.OnLimit, cfg.Limits.MaxDelegations = Finalize, proto.Int32(1)
		}), "x")
		wantReason(t, r.err, agent.ReasonNoResponse)
	})

	for _, tt := range []struct {
		name  string
		given int
		ends  string
	}{
		{"R-002-17 at the limit", 3, ""}, {"R-002-17 at the limit and one more", 4, agent.ReasonMaxDelegations},
	} {
		for _, parallel := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, parallel %t", tt.name, parallel), func(t *testing.T) {
				var d diary
				var list []*teamv1.ToolCall
				for i := range tt.given {
					list = append(list, give("a", fmt.Sprint("task ", i)))
				}
				r := watch(t.Context(), ledBy(t, leads(t, calls(list...), says("done")), d.crew("a"), func(c *CoordinatorConfig, cfg *Config) {
					c.AllowParallel, cfg.Limits.MaxDelegations = parallel, proto.Int32(3)
				}), "x")
				if tt.ends != "" {
					wantReason(t, r.err, tt.ends)
				} else if r.err != nil {
					t.Error(r.err)
				}
				if len(d.all()) != 3 {
					t.Error(d.all())
				}
			})
		}
	}

	t.Run("C-07 max_turns 100 bounds the turns of the leader", func(t *testing.T) {
		for _, c := range []struct {
			limit  OnLimit
			reason string
		}{{FailRun, agent.ReasonMaxIterations}, {Finalize, ""}} {
			m := leads(t)
			for range 100 {
				m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn { return calls(tool("echo", "{}")) })
			}
			m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn { return says("in short") })
			r := watch(t.Context(), ledBy(t, m, registry{}, func(cc *CoordinatorConfig, _ *Config) { cc.Tools, cc.OnLimit = []agent.Tool{echoTool{}}, c.limit }), "x")
			if c.reason != "" {
				has(t, wantReason(t, r.err, c.reason).Message, "100", "limits.max_turns")
			} else if r.err != nil || r.text() != "in short" {
				t.Error(r.err, r.text())
			}
		}
	})

	t.Run("C-07 max_steps counts what dispatches members; FINALIZE holds for it too", func(t *testing.T) {
		for _, limit := range []OnLimit{FailRun, Finalize} {
			var d diary
			m, _ := always()
			r := watch(t.Context(), ledBy(t, m, d.crew("a"), func(c *CoordinatorConfig, cfg *Config) {
				c.OnLimit, cfg.Limits.MaxSteps = limit, proto.Int32(4)
			}), "x")
			if limit == FailRun {
				has(t, wantReason(t, r.err, agent.ReasonMaxIterations).Message, "limits.max_steps")
			} else if r.err != nil || r.text() != "what I have" {
				t.Error(r.err, r.text())
			}
			if len(d.all()) != 4 {
				t.Error(d.all())
			}
		}
	})
}

func TestCoordinator_Refusals(t *testing.T) {
	t.Run("2.3 refused calls spend no delegation; ten in a row end the run", func(t *testing.T) {
		var d diary
		m := leads(t)
		for range 30 {
			m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn { return calls(give("nobody", "x")) })
		}
		r := watch(t.Context(), ledBy(t, m, d.crew("a")), "x")
		has(t, wantReason(t, r.err, agent.ReasonDelegationFailed).Message, "10", `no member "nobody"`)
		if len(m.all()) != 10 {
			t.Error(len(m.all()))
		}
	})

	t.Run("2.3 a call that runs begins the count anew", func(t *testing.T) {
		var d diary
		m := leads(t)
		for i := range 19 {
			m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn {
				if i == 9 {
					return calls(give("a", "x"))
				}
				return calls(give("nobody", "x"))
			})
		}
		m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn { return says("done") })
		if answer, err := ask(t, ledBy(t, m, d.crew("a")), "x"); err != nil || answer != "done" {
			t.Error(answer, err)
		}
	})

	t.Run("2.3 answering ends the count", func(t *testing.T) { // the tenth is refused while the leader answers
		synctest.Test(t, func(t *testing.T) {
			reg := registry{"slow": skilled("slow")}
			var list []*teamv1.ToolCall
			for range 9 {
				list = append(list, give("nobody", "x"))
			}
			list = append([]*teamv1.ToolCall{give("slow", "x"), give("late", "x")}, list...)
			m := leads(t, calls(list...), says("first"), says("second"))
			r := watch(t.Context(), ledBy(t, m, reg, inParallel, func(c *CoordinatorConfig, cfg *Config) {
				c.Async, cfg.Limits.MaxParallel = true, proto.Int32(1)
				c.Members = append(c.Members, Member{Agent: "late"}) // not registered: refused at dispatch
			}), "x")
			if r.err != nil || r.text() != "second" {
				t.Error(r.text(), r.err, r.delegations())
			}
		})
	})

	t.Run("S-14 C-23 R-002-10.2 the same words: an error first, CYCLE_DETECTED the second time", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "x")), calls(give("a", " x\n")), calls(give("a", "x")))
		r := watch(t.Context(), ledBy(t, m, d.crew("a")), "x")
		wantReason(t, r.err, agent.ReasonCycleDetected)
		if len(d.all()) != 1 || len(m.all()) != 3 {
			t.Error(d.all(), len(m.all()))
		}
		has(t, answers(m.all()[2])[0], "c1: ", "second time", "other words")
		if diff := cmp.Diff([]string{"2 a: succeeded", "4 a: rejected CYCLE_DETECTED", "6 a: rejected CYCLE_DETECTED"}, r.delegations()); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("S-14 C-23 strict_cycles: with the first repeat", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "x")), calls(give("a", "x")))
		r := watch(t.Context(), ledBy(t, m, d.crew("a"), func(c *CoordinatorConfig, _ *Config) { c.StrictCycles = true }), "x")
		wantReason(t, r.err, agent.ReasonCycleDetected)
		if len(d.all()) != 1 || len(m.all()) != 2 {
			t.Error(d.all(), len(m.all()))
		}
	})

	t.Run("C-23 repeats of other words are counted on their own", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "x"), give("a", "x"), give("b", "x"), give("b", "x"), give("a", "y")), says("done"))
		r := watch(t.Context(), ledBy(t, m, d.crew("a", "b"), inParallel), "x")
		if r.err != nil || r.text() != "done" {
			t.Error(r.err, r.delegations())
		}
	})

	t.Run("C-23 the context is part of the words, results that are handed over are not", func(t *testing.T) {
		var d diary
		again := calls(tool("delegate_to_a", `{"task":"x","context":"one"}`), give("b", "x"), tool("delegate_to_a", `{"task":"x","context":"two"}`), tool("delegate_to_a", `{"task":"x","context":"one"}`))
		m := leads(t, again, says("done"))
		r := watch(t.Context(), ledBy(t, m, d.crew("a", "b")), "x")
		if diff := cmp.Diff([]string{"2 a: succeeded", "3 b: succeeded", "4 a: succeeded", "5 a: rejected CYCLE_DETECTED"}, r.delegations()); diff != "" || r.err != nil {
			t.Error(diff, r.err)
		}
	})

	t.Run("C-07 C-23 a repeat spends no delegation, also beside others of its turn", func(t *testing.T) {
		var d diary
		for _, parallel := range []bool{false, true} {
			d.calls = nil
			m := leads(t, calls(give("a", "x"), give("a", "x"), give("a", "y")), says("done"))
			r := watch(t.Context(), ledBy(t, m, d.crew("a"), func(c *CoordinatorConfig, cfg *Config) {
				c.AllowParallel, cfg.Limits.MaxDelegations = parallel, proto.Int32(2)
			}), "x")
			if r.err != nil || len(d.all()) != 2 {
				t.Error(r.err, d.all(), r.delegations())
			}
		}
	})

	t.Run("R-000-30 C-23 a second run begins anew", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "x")), says("one"), calls(give("a", "x")), says("two"))
		tm := ledBy(t, m, d.crew("a"))
		for range 2 {
			if _, err := ask(t, tm, "x"); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestCoordinator_SkipsSummary(t *testing.T) {
	skip := func(c *CoordinatorConfig, _ *Config) {
		for i := range c.Members {
			c.Members[i].SkipSummarization = true
		}
	}

	t.Run("S-29 R-004-17 one call: the member's text is the answer, the leader is called once", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "x")))
		r := watch(t.Context(), ledBy(t, m, d.crew("a"), skip), "x")
		if r.err != nil || r.text() != "a(x)" || len(m.all()) != 1 {
			t.Error(r.text(), r.err, len(m.all()))
		}
	})

	t.Run("S-29 R-004-18 C-16 two parallel calls: joined in the order of the calls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.takes("a", 2*time.Second), "b": d.takes("b", time.Second)}
			m := leads(t, calls(give("a", "x"), give("b", "y")))
			r := watch(t.Context(), ledBy(t, m, reg, skip, inParallel), "x")
			if r.err != nil || r.text() != "## a\n\na(x)\n\n## b\n\nb(y)" || len(m.all()) != 1 {
				t.Error(r.text(), r.err, len(m.all()))
			}
		})
	})

	t.Run("R-004-13 not set: one more call of the leader", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "x")), says("sum"))
		if answer, err := ask(t, ledBy(t, m, d.crew("a")), "x"); err != nil || answer != "sum" || len(m.all()) != 2 {
			t.Error(answer, err, len(m.all()))
		}
	})

	for name, turn := range map[string]*teamv1.Turn{
		"another member's reply is among them": calls(give("a", "x"), give("b", "x")),
		"a tool is among them":                 calls(give("a", "x"), tool("echo", "{}")),
		"one of them failed":                   calls(give("a", "x"), give("bad", "x")),
		"one of them is empty":                 calls(give("a", "x"), give("empty", "x")),
		"one was refused":                      calls(give("a", "x"), give("nobody", "x")),
	} {
		t.Run("R-004-17 the leader is asked where "+name, func(t *testing.T) {
			var d diary
			reg := d.crew("a", "b")
			reg["bad"] = failing("bad", agent.Errorf(agent.CodeInternal, agent.ReasonTeamError, "no"))
			reg["empty"] = d.says("empty", func(string) (string, error) { return "", nil })
			m := leads(t, turn, says("sum"))
			tm := ledBy(t, m, reg, skip, member("b", func(m *Member) { m.SkipSummarization = false }), func(c *CoordinatorConfig, _ *Config) { c.Tools = []agent.Tool{echoTool{}} })
			if answer, err := ask(t, tm, "x"); err != nil || answer != "sum" {
				t.Error(answer, err)
			}
		})
	}

	t.Run("A-17 the leader is asked where the user has said more meanwhile", func(t *testing.T) {
		run := &agent.Run{Root: crashRoot}
		reg := registry{"a": &agent.Func{ID: "a", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			run.Deliver(&teamv1.Inbound{N: 1, Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage("m2", "in red")}}})
			return agent.NewMessage("blue"), nil
		}}}
		m := leads(t, calls(give("a", "x")), func(req *agent.ModelRequest) *teamv1.Turn { return says("heard: " + lastSaid(req)) })
		got, err := agent.Reply(agent.With(t.Context(), run), ledBy(t, m, reg, skip), agent.UserMessage("m1", "x"))
		if err != nil || agent.Text(got) != "heard: in red" {
			t.Error(agent.Text(got), err)
		}
	})
}

// TestCoordinator_InheritsModel is S-53 without keys: R-003-14, C-26.
func TestCoordinator_InheritsModel(t *testing.T) {
	lead := leads(t, calls(give("plain", "x"), give("own", "x"), give("flow", "x")), says("by the lead: plain"), says("by the lead: deep"), says("done"))
	own := leads(t, says("by its own"))
	plain, err := NewModelAgent(ModelAgentConfig{ID: "plain", Instructions: "You are plain."})
	if err != nil {
		t.Fatal(err)
	}
	owned, err := NewModelAgent(ModelAgentConfig{ID: "own", Model: own})
	if err != nil {
		t.Fatal(err)
	}
	deep, err := NewModelAgent(ModelAgentConfig{ID: "deep"})
	if err != nil {
		t.Fatal(err)
	}
	flow := newTeamWith(t, Config{ID: "flow", Scheduler: inOrder("deep"), Members: members("deep"), Registry: registry{"deep": deep}})
	tm := ledBy(t, lead, registry{"plain": plain, "own": owned, "flow": flow})
	r := watch(t.Context(), tm, "x")
	if r.err != nil {
		t.Fatal(r.err)
	}
	reqs := lead.all()
	t.Run("S-53 R-003-14 a member without a model takes the leader's, also below a team in between", func(t *testing.T) {
		has(t, strings.Join(answers(reqs[3]), "\n"), "by the lead: plain", "by the lead: deep")
		for _, ev := range r.events {
			if s := ev.GetStarted(); s != nil && strings.HasPrefix(ev.GetScope(), "2.") && s.GetModel() != "lead" {
				t.Error(ev)
			}
		}
	})
	t.Run("S-53 C-26 its own setting wins", func(t *testing.T) {
		has(t, strings.Join(answers(reqs[3]), "\n"), "by its own")
		if len(own.all()) != 1 {
			t.Error(len(own.all()))
		}
	})
	t.Run("C-26 C-27 prompt, tools and history are not inherited; the task is a user message", func(t *testing.T) {
		got := reqs[1]
		if got.Instructions != "You are plain." || len(got.Tools) != 0 || got.Agent != "plain" {
			t.Error(got.Instructions, offered(got))
		}
		if last := got.Messages[len(got.Messages)-1]; last.Role != agent.RoleUser || last.Text != "x" {
			t.Error(last)
		}
	})
	t.Run("R-003-14 nobody to inherit from: an error that says what to do", func(t *testing.T) {
		_, err := ask(t, plain, "x")
		has(t, wantReason(t, err, agent.ReasonTeamError).Message, `"plain"`, "give it a model")
	})
}

// TestR_004_06_Nested has a leader above a leader above a leader.
func TestR_004_06_Nested(t *testing.T) {
	var d diary
	bottom := leads(t, calls(give("writer", "words")), says("bottom says"))
	middle := leads(t, calls(give("bottom", "go down")), says("middle says"))
	top := leads(t, calls(give("middle", "go")), says("top says"))
	named := func(id string) func(*CoordinatorConfig, *Config) {
		return func(_ *CoordinatorConfig, c *Config) { c.ID = id }
	}
	b := ledBy(t, bottom, d.crew("writer"), named("bottom"))
	m := ledBy(t, middle, registry{"bottom": b}, named("middle"))
	r := watch(t.Context(), ledBy(t, top, registry{"middle": m}), "x")
	if r.err != nil || r.text() != "top says" {
		t.Fatal(r.text(), r.err)
	}
	paths := map[string]bool{}
	for _, ev := range r.events {
		paths[ev.GetAgent()] = true
	}
	if diff := cmp.Diff([]string{"t1", "t1/middle", "t1/middle/bottom", "t1/middle/bottom/writer"}, sortedKeys(paths)); diff != "" {
		t.Error(diff)
	}
	t.Run("S-36 a leader sees its direct members only", func(t *testing.T) {
		for _, lead := range []*scriptedLead{top, middle, bottom} {
			if got := offered(lead.all()[0]); len(got) != 1 {
				t.Error(got)
			}
		}
		has(t, answers(middle.all()[1])[0], "bottom: succeeded\n\nbottom says")
	})
	t.Run("R-003-05 a member of another team cannot be called", func(t *testing.T) {
		m := leads(t, calls(give("writer", "x")), says("done"))
		d.calls = nil
		if _, err := ask(t, ledBy(t, m, registry{"middle": ledBy(t, leads(t), registry{}, named("middle"))}), "x"); err != nil || len(d.all()) != 0 {
			t.Error(err, d.all())
		}
		has(t, answers(m.all()[1])[0], `no member "writer"`, "middle")
	})
	r.complete(t)
}

// TestR_002_28_Snapshot changes the registry while a run is under way: what the
// leader is told of the members stays as it was when the run began.
func TestR_002_28_Snapshot(t *testing.T) {
	var d diary
	reg := d.crew("a", "b")
	reg["b"] = &agent.Func{ID: "b", Description: "before", Call: reg["b"].(*agent.Func).Call}
	var mu sync.Mutex
	reg["a"] = d.says("a", func(string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		reg["b"] = &agent.Func{ID: "b", Description: "after", Call: reg["b"].(*agent.Func).Call}
		return "changed", nil
	})
	m := leads(t, calls(give("a", "x")), says("one"), says("two"))
	tm := ledBy(t, m, reg)
	for range 2 {
		if _, err := ask(t, tm, "x"); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"before", "before", "after"} {
		has(t, m.all()[i].Instructions, "- b: "+want)
	}
}

// TestR_002_14_TeamsAreMadeWithoutACall makes a thousand teams, which ask no model
// and no member anything; the first message does.
func TestR_002_14_TeamsAreMadeWithoutACall(t *testing.T) {
	m := leads(t, says("Hi"))
	var d diary
	reg := d.crew("a")
	var last *Team
	for range 1000 {
		last = ledBy(t, m, reg)
	}
	if n := len(m.all()); n != 0 || len(d.all()) != 0 {
		t.Fatalf("%d calls of the model, %v of members", n, d.all())
	}
	if r := watch(t.Context(), last, "Hello"); r.err != nil || r.text() != "Hi" || len(m.all()) != 1 {
		t.Error(r.text(), r.err, len(m.all()))
	}
}

// TestR_002_38_NamesOfOurOwn: the tools of a leader are named as C-08 has them.
func TestR_002_38_NamesOfOurOwn(t *testing.T) {
	var d diary
	for style, want := range map[ToolStyle]string{PerMember: "delegate_to_a", Single: "delegate_task_to_member"} {
		m := leads(t, says("Hi"))
		watch(t.Context(), ledBy(t, m, d.crew("a"), func(k *CoordinatorConfig, _ *Config) { k.ToolStyle = style }), "Hello")
		if tools := m.all()[0].Tools; len(tools) != 1 || tools[0].Name != want {
			t.Errorf("%s: the tools are %v, want %s", style, tools, want)
		}
	}
}
