package team_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/leader"
)

func async(c *leader.CoordinatorConfig, _ *team.Config) { c.Async = true }

// after is a turn that a leader takes some time for.
func after(wait time.Duration, turn *teamv1.Turn) func(*agent.ModelRequest) *teamv1.Turn {
	return func(*agent.ModelRequest) *teamv1.Turn {
		time.Sleep(wait) // the bubble's
		return turn
	}
}

func check1(arguments string) *teamv1.Turn { return calls(tool(checkTool, arguments)) }

const first, second = crashRoot + "~2", crashRoot + "~3"

func TestTicket_Lead(t *testing.T) {
	t.Run("S-20 R-003-11 R-003-12 C-09 a ticket at once; running, then the result; then the answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"web": d.takes("web", 10*time.Second)}
			m := leads(t, calls(give("web", "search")), check1("{}"), after(20*time.Second, check1(`{"task_ids":["`+first+`"]}`)), says("found it"))
			r := watch(t.Context(), ledBy(t, m, reg, async), "x")
			if r.err != nil || r.text() != "found it" || len(m.all()) != 4 {
				t.Fatal(r.text(), r.err, len(m.all()))
			}
			got := [][]string{answers(m.all()[1]), answers(m.all()[2]), answers(m.all()[3])}
			want := [][]string{
				{"c1: Under way as " + first + ". Go on; call check_delegated_tasks to see how it stands."},
				{"c1: " + first + "\nweb: working"}, {"c1: " + first + "\nweb: succeeded\n\nweb(search)"},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if !slices.Contains(offered(m.all()[0]), checkTool) {
				t.Error(offered(m.all()[0]))
			}
			r.complete(t)
		})
	})

	t.Run("R-003-13 dependent work: the first, then the second with its result, then the answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"web": d.takes("web", 10*time.Second), "code": d.takes("code", 5*time.Second)}
			m := leads(t, calls(give("web", "search")), check1(`{"wait_seconds":30}`),
				func(req *agent.ModelRequest) *teamv1.Turn {
					_, result, _ := strings.Cut(lastSaid(req), "succeeded\n\n")
					return calls(give("code", "script for "+result))
				},
				check1(`{"task_ids":["`+crashRoot+`~6"],"wait_seconds":30}`), func(req *agent.ModelRequest) *teamv1.Turn { return says(lastSaid(req)) })
			begin := time.Now()
			r := watch(t.Context(), ledBy(t, m, reg, async), "x")
			has(t, r.text(), "code: succeeded\n\ncode(script for web(search))")
			if r.err != nil || time.Since(begin) != 15*time.Second {
				t.Error(r.err, time.Since(begin))
			}
		})
	})

	t.Run("C-28 the ticket is the id of the child task, below nested teams too", func(t *testing.T) {
		var d diary
		inner := leads(t, calls(give("w", "x")), says("inner says"), says("inner says more"))
		in := ledBy(t, inner, d.crew("w"), async, func(_ *leader.CoordinatorConfig, c *team.Config) { c.ID = "in" })
		r := watch(t.Context(), ledBy(t, leads(t, calls(give("in", "go")), says("done")), registry{"in": in}), "x")
		has(t, answers(inner.all()[1])[0], crashRoot+"~2.2")
		if r.err != nil {
			t.Error(r.err)
		}
	})

	t.Run("a member's own setting wins, both ways", func(t *testing.T) {
		var d diary
		for _, all := range []bool{true, false} {
			m := leads(t, calls(give("a", "x"), give("b", "x")), says("done"), says("done"))
			tm := ledBy(t, m, d.crew("a", "b"), member("a", func(m *team.Member) { m.Async = proto.Bool(!all) }), func(c *leader.CoordinatorConfig, _ *team.Config) { c.Async = all })
			if _, err := ask(t, tm, "x"); err != nil {
				t.Fatal(err)
			}
			got := answers(m.all()[1])
			if strings.Contains(got[0], "Under way") == all || strings.Contains(got[1], "Under way") != all {
				t.Error(got)
			}
		}
	})

	t.Run("C-08 no check_delegated_tasks where nothing is asynchronous", func(t *testing.T) {
		var d diary
		m := leads(t, check1("{}"), says("done"))
		if _, err := ask(t, ledBy(t, m, d.crew("a")), "x"); err != nil || slices.Contains(offered(m.all()[0]), checkTool) {
			t.Error(err, offered(m.all()[0]))
		}
		has(t, answers(m.all()[1])[0], "no tool")
	})
}

// TestTicket_Check asks how three tasks stand: one has ended, one fails, one works.
func TestTicket_Check(t *testing.T) {
	ended, works := first+"\nfast: succeeded\n\nfast(1)", crashRoot+"~4\nslow: working"
	failed := second + "\nbad: failed (AGENT_NOT_FOUND)\n\nno such book"
	for _, tt := range []struct {
		name, arguments, want string
		waits                 time.Duration
	}{
		{"R-003-12 all of them", `{}`, ended + "\n\n" + failed + "\n\n" + works, 0},
		{"R-003-12 no arguments", ``, ended + "\n\n" + failed + "\n\n" + works, 0},
		{"null is all of them", `{"task_ids":null,"wait_seconds":null}`, ended + "\n\n" + failed + "\n\n" + works, 0},
		{"an empty list is all of them", `{"task_ids":[]}`, ended + "\n\n" + failed + "\n\n" + works, 0},
		{"one of them", `{"task_ids":["` + second + `"]}`, failed, 0},
		{"a text for the list", `{"task_ids":"` + second + `"}`, failed, 0},
		{"encoded twice", `"{\"task_ids\":[\"` + second + `\"]}"`, failed, 0},
		{"R-003-12 an unknown id gets a clear entry", `{"task_ids":["nope","` + second + `"]}`, failed + "\n\nnope\nthere is no such task", 0},
		{"R-003-12 unknown ids only", `{"task_ids":["nope"],"wait_seconds":20}`, "nope\nthere is no such task", 0},
		{"what has ended is told at once, also with time to wait", `{"wait_seconds":20}`, ended + "\n\n" + failed + "\n\n" + works, 0},
		{"C-08 wait_seconds: until the time is over", `{"task_ids":["` + crashRoot + `~4"],"wait_seconds":2}`, works, 2 * time.Second},
		{"C-08 a part of a second", `{"task_ids":["` + crashRoot + `~4"],"wait_seconds":0.25}`, works, 250 * time.Millisecond},
		{"C-08 wait_seconds: until it has ended", `{"task_ids":["` + crashRoot + `~4"],"wait_seconds":29}`, crashRoot + "~4\nslow: succeeded\n\nslow(3)", 19 * time.Second},
		{"a negative time is none", `{"task_ids":["` + crashRoot + `~4"],"wait_seconds":-5}`, works, 0},
		{"R-002-6.1 junk", `junk`, "the arguments are not a JSON object", 0},
		{"R-002-6.3 ids that are no texts", `{"task_ids":[1]}`, "task_ids must be a list of strings, got a list", 0},
		{"R-002-6.3 ids that are no list", `{"task_ids":{}}`, "task_ids must be a list of strings, got an object", 0},
		{"R-002-6.3 a time that is no number", `{"wait_seconds":"5"}`, "wait_seconds must be a number, got a string", 0},
		{"R-002-6.3 a time that is far too much", `{"task_ids":["` + crashRoot + `~4"],"wait_seconds":1e300}`, crashRoot + "~4\nslow: succeeded\n\nslow(3)", 19 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d diary
				reg := d.crew("fast")
				reg["bad"] = failing("bad", agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no such book"))
				reg["slow"] = d.takes("slow", 20*time.Second)
				var begin time.Time
				m := leads(t, calls(give("fast", "1"), give("bad", "2"), give("slow", "3")),
					after(time.Second, check1(tt.arguments)),
					func(*agent.ModelRequest) *teamv1.Turn {
						if waited := time.Since(begin) - time.Second; waited != tt.waits {
							t.Errorf("it has waited %s, want %s", waited, tt.waits)
						}
						return says("done")
					}, says("done"))
				begin = time.Now()
				r := watch(t.Context(), ledBy(t, m, reg, async), "x")
				if r.err != nil {
					t.Fatal(r.err)
				}
				got := strings.TrimPrefix(answers(m.all()[2])[0], "c1: ")
				if strings.Contains(tt.name, "R-002-6") && !strings.Contains(tt.name, "much") {
					has(t, got, tt.want)
				} else if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
				r.complete(t)
			})
		})
	}

	t.Run("C-08 the longest wait is 30 s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			m := leads(t, calls(give("a", "x")), check1(`{"wait_seconds":600}`), func(*agent.ModelRequest) *teamv1.Turn {
				if waited := time.Since(begin); waited != 30*time.Second {
					t.Errorf("it has waited %s", waited)
				}
				return says("enough")
			}, says("enough"))
			if r := watch(t.Context(), ledBy(t, m, registry{"a": stuck("a")}, async), "x"); r.err != nil {
				t.Error(r.err)
			}
		})
	})

	t.Run("a check that waits ends with the first news, and a second one waits for the next", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.takes("a", 5*time.Second), "b": d.takes("b", 9*time.Second)}
			begin := time.Now()
			var at []time.Duration
			wait := func(*agent.ModelRequest) *teamv1.Turn {
				at = append(at, time.Since(begin))
				return check1(`{"wait_seconds":30}`)
			}
			m := leads(t, calls(give("a", "x"), give("b", "x")), wait, wait, wait, says("done"))
			r := watch(t.Context(), ledBy(t, m, reg, async), "x")
			if diff := cmp.Diff([]time.Duration{0, 5 * time.Second, 9 * time.Second}, at); diff != "" || r.err != nil || time.Since(begin) != 9*time.Second {
				t.Error(diff, r.err, time.Since(begin))
			}
			has(t, answers(m.all()[4])[0], "a: succeeded", "b: succeeded")
		})
	})

	t.Run("a check in one turn with the delegations, and beside a tool and a member that is waited for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, parallel := range []bool{false, true} {
				var d diary
				reg := registry{"a": d.takes("a", 5*time.Second), "b": d.takes("b", 2*time.Second)}
				m := leads(t, calls(give("a", "x"), tool(checkTool, `{"wait_seconds":30}`), tool("echo", "{}"), give("b", "y")), says("done"), says("done"))
				tm := ledBy(t, m, reg, async, member("b", func(m *team.Member) { m.Async = proto.Bool(false) }), func(c *leader.CoordinatorConfig, _ *team.Config) {
					c.AllowParallel, c.Tools = parallel, []agent.Tool{echoTool{}}
				})
				r := watch(t.Context(), tm, "x")
				got := answers(m.all()[1])
				if r.err != nil || len(got) != 4 {
					t.Fatal(r.err, got)
				}
				has(t, got[1], "a: succeeded\n\na(x)")
				has(t, got[3], "c4: b: succeeded")
				r.complete(t)
			}
		})
	})
}

func TestTicket_Answer(t *testing.T) {
	t.Run("C-09 WAIT: the answer waits, the leader gets the results once, and answers again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.takes("a", 5*time.Second), "b": d.takes("b", 3*time.Second)}
			m := leads(t, calls(give("a", "x"), give("b", "y")), says("I am on it"), says("all is there"))
			r := watch(t.Context(), ledBy(t, m, reg, async), "x")
			if r.err != nil || r.text() != "all is there" || len(m.all()) != 3 {
				t.Fatal(r.text(), r.err, len(m.all()))
			}
			last := m.all()[2].Messages
			if last[len(last)-2].Text != "I am on it" || last[len(last)-1].Role != agent.RoleUser {
				t.Error(last)
			}
			has(t, lastSaid(m.all()[2]), first+"\na: succeeded\n\na(x)", second+"\nb: succeeded\n\nb(y)")
			r.complete(t)
		})
	})

	t.Run("C-09 WAIT: what a check has told is not told again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.takes("a", 2*time.Second), "b": d.takes("b", 9*time.Second)}
			m := leads(t, calls(give("a", "x"), give("b", "y")), check1(`{"wait_seconds":30}`), says("half"), says("whole"))
			r := watch(t.Context(), ledBy(t, m, reg, async), "x")
			if r.err != nil || r.text() != "whole" {
				t.Fatal(r.text(), r.err)
			}
			if said := lastSaid(m.all()[3]); strings.Contains(said, "a(x)") || !strings.Contains(said, "b(y)") {
				t.Error(said)
			}
		})
	})

	t.Run("C-09 WAIT: a check for one of them does not tell of the other", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			m := leads(t, calls(give("a", "x"), give("b", "y")), after(time.Second, check1(`{"task_ids":["`+first+`"]}`)), says("half"), says("whole"))
			r := watch(t.Context(), ledBy(t, m, d.crew("a", "b"), async), "x")
			if said := lastSaid(m.all()[3]); r.text() != "whole" || strings.Contains(said, "a(x)") || !strings.Contains(said, "b(y)") {
				t.Error(said, r.err)
			}
		})
	})

	t.Run("C-09 when all was told the first answer stands", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			m := leads(t, calls(give("a", "x")), check1(`{"wait_seconds":5}`), says("done"))
			r := watch(t.Context(), ledBy(t, m, d.crew("a"), async), "x")
			if r.err != nil || r.text() != "done" || len(m.all()) != 3 {
				t.Error(r.text(), r.err, len(m.all()))
			}
		})
	})

	t.Run("C-09 CANCEL: what works is ended, and the answer stands", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.takes("a", 5*time.Second), "b": d.takes("b", 5*time.Second), "c": d.takes("c", time.Second)}
			m := leads(t, calls(give("a", "x"), give("b", "y"), give("c", "z")), after(2*time.Second, says("that will do")))
			begin := time.Now()
			r := watch(t.Context(), ledBy(t, m, reg, async, func(c *leader.CoordinatorConfig, _ *team.Config) { c.OpenDelegations = leader.CancelOpen }), "x")
			if r.err != nil || r.text() != "that will do" || time.Since(begin) != 2*time.Second {
				t.Error(r.text(), r.err, time.Since(begin))
			}
			if diff := cmp.Diff([]string{"2 a: canceled CANCELED", "3 b: canceled CANCELED", "4 c: succeeded"}, r.delegations()); diff != "" {
				t.Error(diff)
			}
			r.complete(t)
			synctest.Wait()
			if got := d.all(); !slices.Contains(got, "a is ended") || !slices.Contains(got, "b is ended") {
				t.Error(got)
			}
		})
	})

	t.Run("C-09 WAIT is bounded by the run's time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := leads(t, calls(give("a", "x")), after(250*time.Second, says("soon")))
			begin := time.Now()
			tm := ledBy(t, m, registry{"a": stuck("a")}, async, member("a", func(m *team.Member) { m.Timeout = time.Hour }))
			r := watch(t.Context(), tm, "x")
			wantReason(t, r.err, agent.ReasonTimeout)
			if time.Since(begin) != 300*time.Second {
				t.Error(time.Since(begin))
			}
			r.complete(t)
		})
	})

	t.Run("C-09 WAIT: a failure is told too", func(t *testing.T) {
		reg := registry{"a": failing("a", agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no such book"))}
		m := leads(t, calls(give("a", "x")), says("soon"), says("it failed"))
		r := watch(t.Context(), ledBy(t, m, reg, async), "x")
		if r.err != nil || r.text() != "it failed" {
			t.Fatal(r.text(), r.err)
		}
		has(t, lastSaid(m.all()[2]), "a: failed (AGENT_NOT_FOUND)", "no such book")
	})

	t.Run("C-05 C-09 an empty answer while work is open: the results come all the same", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			m := leads(t, calls(give("a", "x")), says(""), says("there"))
			r := watch(t.Context(), ledBy(t, m, registry{"a": d.takes("a", time.Second)}, async), "x")
			if r.err != nil || r.text() != "there" {
				t.Error(r.text(), r.err)
			}
			m = leads(t, calls(give("a", "x")), says("soon"), says(""), says(""))
			r = watch(t.Context(), ledBy(t, m, registry{"a": d.takes("a", time.Second)}, async), "x")
			wantReason(t, r.err, agent.ReasonNoResponse)
		})
	})

	t.Run("S-13 C-09 FINALIZE: what works is waited for, and its results are in the last turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, open := range []leader.OpenDelegations{leader.WaitOpen, leader.CancelOpen} {
				var d diary
				reg := registry{"a": d.takes("a", 5*time.Second)}
				m := leads(t, calls(give("a", "1"), give("a", "2")), func(req *agent.ModelRequest) *teamv1.Turn { return says(lastSaid(req)) })
				r := watch(t.Context(), ledBy(t, m, reg, async, func(c *leader.CoordinatorConfig, cfg *team.Config) {
					c.OnLimit, c.OpenDelegations, cfg.Limits.MaxDelegations = leader.Finalize, open, proto.Int32(1)
				}), "x")
				if r.err != nil || strings.Contains(r.text(), "a: succeeded\n\na(1)") != (open == leader.WaitOpen) {
					t.Error(open, r.text(), r.err)
				}
				r.complete(t)
			}
		})
	})
}

func TestTicket_Duplicates(t *testing.T) {
	t.Run("S-23 the same task of the same member while it is open: the first ticket, and one call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for name, turns := range map[string][]any{
				"in one turn":   {calls(give("a", "x"), give("a", " x "))},
				"in two turns":  {calls(give("a", "x")), calls(give("a", "x"))},
				"one by one":    {calls(give("a", "x")), calls(give("a", "x"), give("a", "x"))},
				"in both forms": {calls(give("a", "x")), calls(tool("delegate_task_to_member", `{"member_id":"a","task":"x"}`))},
			} {
				for _, parallel := range []bool{false, true} {
					var d diary
					m := leads(t, append(turns, says("soon"), says("done"))...)
					r := watch(t.Context(), ledBy(t, m, registry{"a": d.takes("a", time.Second)}, async, func(c *leader.CoordinatorConfig, _ *team.Config) { c.AllowParallel = parallel }), "x")
					if r.err != nil || r.text() != "done" || len(d.all()) != 2 {
						t.Error(name, r.text(), r.err, d.all())
					}
					got := answers(m.all()[len(turns)])
					has(t, got[len(got)-1], "under way already, as "+first)
				}
			}
		})
	})

	t.Run("S-23 another text, another member, or context: a task of its own", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.takes("a", time.Second), "b": d.takes("b", time.Second)}
			m := leads(t, calls(give("a", "x"), give("a", "y"), give("b", "x"), tool("delegate_to_a", `{"task":"x","context":"c"}`)), says("soon"), says("done"))
			r := watch(t.Context(), ledBy(t, m, reg, async), "x")
			if r.err != nil || len(r.delegations()) != 4 {
				t.Error(r.err, r.delegations())
			}
		})
	})

	t.Run("C-23 once it has ended, it is a repeat", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			m := leads(t, calls(give("a", "x")), after(time.Second, calls(give("a", "x"))), says("soon"), says("done"))
			r := watch(t.Context(), ledBy(t, m, d.crew("a"), async), "x")
			if diff := cmp.Diff([]string{"2 a: succeeded", "4 a: rejected CYCLE_DETECTED"}, r.delegations()); diff != "" || r.err != nil {
				t.Error(diff, r.err)
			}
		})
	})

	t.Run("S-23 a duplicate spends no delegation", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.takes("a", time.Second)}
			m := leads(t, calls(give("a", "x"), give("a", "x"), give("a", "y")), says("soon"), says("done"))
			r := watch(t.Context(), ledBy(t, m, reg, async, func(_ *leader.CoordinatorConfig, c *team.Config) { c.Limits.MaxDelegations = proto.Int32(2) }), "x")
			if r.err != nil {
				t.Error(r.err, r.delegations())
			}
		})
	})
}

func TestTicket_Slots(t *testing.T) {
	t.Run("R-002-3.5 C-09 max_parallel 1: one after the other, and a member that is waited for gets its turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.takes("a", 2*time.Second), "b": d.takes("b", 2*time.Second), "c": d.takes("c", 2*time.Second)}
			m := leads(t, calls(give("a", "x"), give("b", "y"), give("c", "z")), check1(`{"wait_seconds":30}`), check1(`{"wait_seconds":30}`), says("done"))
			tm := ledBy(t, m, reg, async, member("c", func(m *team.Member) { m.Async = proto.Bool(false) }), func(_ *leader.CoordinatorConfig, c *team.Config) { c.Limits.MaxParallel = proto.Int32(1) })
			r := watch(t.Context(), tm, "x")
			if r.err != nil || r.text() != "done" {
				t.Fatal(r.text(), r.err)
			}
			if got := d.all(); len(got) != 6 || got[0] != "a begins" || got[1] != "a ends" || !strings.HasSuffix(got[3], " ends") {
				t.Error("they overlap: ", got)
			}
			r.complete(t)
		})
	})

	t.Run("C-09 CANCEL with a task that waits for a slot: it never begins, and has no end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.takes("a", time.Minute), "b": d.takes("b", time.Minute)}
			m := leads(t, calls(give("a", "x"), give("b", "y")), after(time.Second, says("enough")))
			r := watch(t.Context(), ledBy(t, m, reg, async, func(c *leader.CoordinatorConfig, cfg *team.Config) {
				c.OpenDelegations, cfg.Limits.MaxParallel = leader.CancelOpen, proto.Int32(1)
			}), "x")
			if r.err != nil || r.starts("3") != 0 {
				t.Error(r.err, r.starts("3"))
			}
			r.complete(t)
		})
	})

	t.Run("C-28 one task is canceled by its ticket while the others go on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := &agent.Run{Root: crashRoot}
			var d diary
			reg := registry{"a": d.takes("a", time.Minute), "b": d.takes("b", 5*time.Second)}
			m := leads(t, calls(give("a", "x"), give("b", "y")), func(*agent.ModelRequest) *teamv1.Turn {
				time.Sleep(time.Second)
				run.Cancel("2")
				return check1(`{"wait_seconds":30}`)
			}, says("done"), says("done"))
			begin := time.Now()
			answer, err := agent.Reply(agent.With(t.Context(), run), ledBy(t, m, reg, async), agent.UserMessage("m", "x"))
			if err != nil || agent.Text(answer) != "done" || time.Since(begin) != 5*time.Second {
				t.Error(agent.Text(answer), err, time.Since(begin))
			}
			has(t, answers(m.all()[2])[0], "a: canceled (CANCELED)", "b: working")
			synctest.Wait()
		})
	})
}

// TestA_17_MoreIsSaidWhileTheAnswerWaits has a user who says more while the answer
// waits for a task.
func TestA_17_MoreIsSaidWhileTheAnswerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := &agent.Run{Root: crashRoot}
		var d diary
		go func() {
			time.Sleep(2 * time.Second) // the bubble's
			run.Deliver(&teamv1.Inbound{N: 1, Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage("m2", "hurry")}}})
		}()
		m := leads(t, calls(give("a", "x")), says("soon"), says("I do"), says("there"))
		begin := time.Now()
		var at []time.Duration
		for i, turn := range m.turns {
			m.turns[i] = func(req *agent.ModelRequest) *teamv1.Turn {
				at = append(at, time.Since(begin))
				return turn(req)
			}
		}
		answer, err := agent.Reply(agent.With(t.Context(), run), ledBy(t, m, registry{"a": d.takes("a", 5*time.Second)}, async), agent.UserMessage("m", "x"))
		if err != nil || agent.Text(answer) != "there" {
			t.Fatal(agent.Text(answer), err)
		}
		if diff := cmp.Diff([]time.Duration{0, 0, 2 * time.Second, 5 * time.Second}, at); diff != "" {
			t.Error(diff)
		}
		if lastSaid(m.all()[2]) != "hurry" {
			t.Error(lastSaid(m.all()[2]))
		}
		has(t, lastSaid(m.all()[3]), "a(x)")
	})
}

// asksFirst is a member that asks, and answers with what it was told.
func asksFirst(w *world, id string) agent.Agent { return &asker{worker{w: w, name: id}} }

// drive runs an agent on a world until it ends or parks.
func (w *world) drive(t *testing.T, a agent.Agent) (ended bool) {
	t.Helper()
	park, err := runnerOf(a).Drive(t.Context(), claimOf(w))
	if err != nil {
		t.Fatal(err)
	}
	return park.Done
}

// open are the open questions on record, as their scopes.
func (w *world) open() []string {
	asked := map[string]string{}
	for _, ev := range w.events {
		if q := ev.GetAsked(); q != nil {
			asked[q.GetQuestion()] = ev.GetScope()
		}
		delete(asked, ev.GetAnswered().GetQuestion())
	}
	var scopes []string
	for _, q := range sortedKeys(asked) {
		scopes = append(scopes, asked[q])
	}
	slices.Sort(scopes)
	return scopes
}

// result is the answer on record.
func (w *world) result() string {
	last := w.events[len(w.events)-1].GetEnded()
	m := last.GetReply()
	if ref := last.GetReplyRef(); ref > 0 {
		m = journal.MessageOf(crashRoot, w.events[ref-1])
	}
	return fmt.Sprintf("%s: %s%s", expr.OutcomeWord(last.GetOutcome()), agent.Text(m), last.GetError().GetMessage())
}

func TestAsksUnderALeader(t *testing.T) {
	t.Run("S-51 two parallel members ask, the third works; the leader goes on with all answers", func(t *testing.T) {
		w := newWorld(t)
		reg := registry{"l": asksFirst(w, "l"), "r": asksFirst(w, "r"), "a": &worker{w: w, name: "a"}}
		m := leads(t, calls(give("l", "1"), give("r", "2"), give("a", "3")), says("done"))
		tm := ledBy(t, m, reg, inParallel)
		if w.drive(t, tm) || len(m.all()) != 1 {
			t.Fatal("it does not wait", len(m.all()))
		}
		if diff := cmp.Diff([]string{"2", "3"}, w.open()); diff != "" {
			t.Fatal(diff)
		}
		w.answer()
		if !w.drive(t, tm) || w.result() != "succeeded: done" {
			t.Fatal(w.result())
		}
		want := []string{"c1: l: succeeded\n\ntold: yes to l?", "c2: r: succeeded\n\ntold: yes to r?", "c3: a: succeeded\n\na(3)"}
		if diff := cmp.Diff(want, answers(m.all()[1])); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]int{"l": 1, "r": 1, "a": 1}, w.effects); diff != "" {
			t.Error("repeated work: ", diff)
		}
	})

	t.Run("S-51 one after the other: the second begins when the first was answered", func(t *testing.T) {
		w := newWorld(t)
		m := leads(t, calls(give("l", "1"), give("r", "2")), says("done"))
		tm := ledBy(t, m, registry{"l": asksFirst(w, "l"), "r": asksFirst(w, "r")})
		for _, want := range []string{"2", "3"} {
			if w.drive(t, tm) {
				t.Fatal("it does not wait")
			}
			if diff := cmp.Diff([]string{want}, w.open()); diff != "" {
				t.Fatal(diff)
			}
			w.answer()
		}
		if !w.drive(t, tm) {
			t.Error(w.open())
		}
	})

	t.Run("S-51 C-09 an asynchronous member that asks: the leader goes on, a check says so at once, the answer waits", func(t *testing.T) {
		w := newWorld(t)
		m := leads(t, calls(give("l", "1")), check1(`{"wait_seconds":30}`), says("soon"), says("done"))
		reg := registry{"l": asksFirst(w, "l")}
		tm := ledBy(t, m, reg, async)
		if w.drive(t, tm) || len(m.all()) != 3 {
			t.Fatal("it does not wait for people: ", len(m.all()))
		}
		has(t, answers(m.all()[2])[0], "l: waits for an answer of the user")
		w.answer()
		if !w.drive(t, tm) || w.result() != "succeeded: done" {
			t.Fatal(w.result())
		}
		has(t, lastSaid(m.all()[3]), "l: succeeded\n\ntold: yes to l?")
	})

	t.Run("S-51 C-09 CANCEL ends a question", func(t *testing.T) {
		w := newWorld(t)
		m := leads(t, calls(give("l", "1")), check1(`{"wait_seconds":30}`), says("enough"))
		tm := ledBy(t, m, registry{"l": asksFirst(w, "l")}, async, func(c *leader.CoordinatorConfig, _ *team.Config) { c.OpenDelegations = leader.CancelOpen })
		if !w.drive(t, tm) || w.result() != "succeeded: enough" {
			t.Fatal(w.result())
		}
	})
}

// TestCancelWhileACheckWaits cancels a run whose leader waits for a task.
func TestCancelWhileACheckWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			time.Sleep(3 * time.Second) // the bubble's
			cancel(agent.ErrCanceled)
		}()
		var d diary
		m := leads(t, calls(give("a", "x")), check1(`{"wait_seconds":30}`))
		begin := time.Now()
		r := watch(ctx, ledBy(t, m, registry{"a": d.takes("a", time.Minute)}, async), "x")
		if !errors.Is(r.err, agent.ErrCanceled) || time.Since(begin) != 3*time.Second {
			t.Error(r.err, time.Since(begin))
		}
		if diff := cmp.Diff([]string{"2 a: canceled CANCELED"}, r.delegations()); diff != "" {
			t.Error(diff)
		}
		r.complete(t)
		synctest.Wait()
	})
}

// TestCancelLeavesNothing has members that take no notice of their context.
func TestCancelLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		deaf := &agent.Func{ID: "deaf", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			time.Sleep(time.Minute) // the bubble's
			return agent.NewMessage("late"), nil
		}}
		go func() {
			time.Sleep(time.Second) // the bubble's
			cancel(agent.ErrCanceled)
		}()
		begin := time.Now()
		r := watch(ctx, ledBy(t, leads(t, calls(give("deaf", "x"), give("deaf", "y"))), registry{"deaf": deaf}, inParallel), "x")
		if time.Since(begin) != time.Second {
			t.Error(time.Since(begin))
		}
		r.complete(t)
		time.Sleep(2 * time.Minute) // the bubble's: for what was left behind
	})
}
