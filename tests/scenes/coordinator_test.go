package scenes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// desk is a team with a leader above model-backed members; SET is what its
// coordinator is told besides, LIMITS its limits.
const desk = `agents:
  a: {model: a, instructions: You are A., description: Does A.}
  b: {model: b, instructions: You are B.}
  c: {model: c, instructions: You are C.}
teams:
  desk:
    members: [{agent: a, MEMBER}, {agent: b}, {agent: c}]
    coordinator: {leader: {model: lead, instructions: Lead well.}, SET}
    limits: {retry: {backoff: 1ms}, LIMITS}
`

const deskModels = "lead a b c"

// deskWith is desk with the keys set.
func deskWith(set, limits, member string) string {
	for key, value := range map[string]string{"SET": set, "LIMITS": limits, "MEMBER": member} {
		if value == "" {
			key = ", " + key
		}
		if !strings.Contains(desk, key) {
			panic(key)
		}
	}
	text := desk
	for _, kv := range [][2]string{{"SET", set}, {"LIMITS", limits}, {"MEMBER", member}} {
		if kv[1] == "" {
			text = strings.Replace(text, ", "+kv[0], "", 1)
			continue
		}
		text = strings.Replace(text, kv[0], kv[1], 1)
	}
	return text
}

func TestS_04_DirectAnswer(t *testing.T) {
	eachScene(t, deskModels, deskWith("", "", ""), func(t *testing.T, s *scene) {
		s.script("lead", speaks("Hi"))
		r := s.play("desk", "Hello").completed("Hi")
		t.Run("S-04 R-002-1.1 R-003-10 one model call, no delegation", func(t *testing.T) {
			if n := len(s.llm.Requests()); n != 1 {
				t.Errorf("%d model calls", n)
			}
			if d := r.detailed().GetDelegations(); len(d) != 0 {
				t.Error(d)
			}
		})
	})
}

func TestS_05_OneDelegation(t *testing.T) {
	eachScene(t, deskModels, deskWith("", "", ""), func(t *testing.T, s *scene) {
		s.script("lead", acts(gives("a", "poem")), speaks("Here you are."))
		s.script("a", speaks("Roses are red."))
		r := s.play("desk", "A poem, please").completed("Here you are.")
		t.Run("S-05 the leader got the member's text", func(t *testing.T) {
			if diff := cmp.Diff([]string{"call-a-poem: a: succeeded\n\nRoses are red."}, results(s.asked("lead")[1])); diff != "" {
				t.Error(diff)
			}
		})
		t.Run("S-05 C-28 the delegation is a task, which names its parent, and the root lists it", func(t *testing.T) {
			child := r.task("2")
			wantText(t, child, "Roses are red.")
			run := r.detailed()
			if len(run.GetDelegations()) != 1 || run.GetDelegations()[0].GetId() != r.id+"~2" || run.GetDelegations()[0].GetPath() != "desk/a" {
				t.Error(run.GetDelegations())
			}
			if agent.Text(child.GetHistory()[0]) != "poem" {
				t.Error(child.GetHistory())
			}
		})
		t.Run("R-002-16 the run is told in its metadata: its ids, delegations with their attempts, what it cost", func(t *testing.T) {
			task, run := r.task(""), r.detailed()
			if task.GetId() == "" || task.GetContextId() == "" || run.GetSpent().GetModelCalls() != 3 || run.GetDelegations()[0].GetAttempts() != 1 {
				t.Error(task, run)
			}
		})
		t.Run("R-002-21 prepared, the leader's loop, the delegation, the end: in this order", func(t *testing.T) {
			var kinds []string
			for _, ev := range r.events {
				switch {
				case ev.GetAccepted() != nil:
					kinds = append(kinds, "accepted")
				case ev.GetObserved() != nil:
					kinds = append(kinds, "prepared")
				case ev.GetDecided() != nil && ev.GetScope() == "":
					kinds = append(kinds, "decided")
				case ev.GetStarted() != nil && ev.GetScope() == "2":
					kinds = append(kinds, "member begins")
				case ev.GetEnded() != nil && ev.GetScope() == "2":
					kinds = append(kinds, "member ends")
				case ev.GetEnded() != nil && ev.GetScope() == "":
					kinds = append(kinds, "ended")
				}
			}
			want := []string{"accepted", "prepared", "decided", "decided", "member begins", "member ends", "decided", "decided", "ended"}
			if diff := cmp.Diff(want, kinds); diff != "" {
				t.Error(diff)
			}
		})
	})
}

func TestS_06_Sequential(t *testing.T) {
	eachScene(t, deskModels, deskWith("", "", ""), func(t *testing.T, s *scene) {
		s.script("lead", acts(gives("a", "one"), gives("b", "two")), speaks("done"))
		s.script("a", fakellm.Turn{Text: "A says", Delay: 50 * time.Millisecond})
		s.script("b", speaks("B says"))
		s.play("desk", "go").completed("done")
		t.Run("S-06 R-002-02 R-002-22 the second begins when the first has ended, with its result", func(t *testing.T) {
			a, b := s.asked("a")[0], s.asked("b")[0]
			if !b.Arrived.After(a.Finished) {
				t.Errorf("a ended at %s, b began at %s", a.Finished, b.Arrived)
			}
			holds(t, b.Last(), "two", "a: succeeded\n\nA says")
		})
	})
}

func TestS_07_Parallel(t *testing.T) {
	ids := []string{"m1", "m2", "m3", "m4", "m5"}
	var agents, list strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&agents, "  %s: {model: %s, instructions: Work.}\n", id, id)
		fmt.Fprintf(&list, "{agent: %s}, ", id)
	}
	file := "agents:\n" + agents.String() + "teams:\n  desk:\n    members: [" + strings.TrimSuffix(list.String(), ", ") + "]\n    coordinator: {leader: {model: lead}, allow_parallel: true}\n"
	eachScene(t, "lead "+strings.Join(ids, " "), file, func(t *testing.T, s *scene) {
		gates := map[string]*fakellm.Gate{}
		var calls []fakellm.Call
		for _, id := range ids {
			gates[id] = fakellm.NewGate()
			s.script(id, fakellm.Turn{Text: id + " says", Gate: gates[id]})
			calls = append(calls, gives(id, "go"))
		}
		s.script("lead", acts(calls...), speaks("done"))
		r := s.begin("desk", "go")
		for _, id := range ids[:3] {
			s.arrived(gates[id], 1)
		}
		for _, id := range []string{"m3", "m1", "m2", "m4", "m5"} { // m4 and m5 begin as there is room
			s.arrived(gates[id], 1)
			gates[id].Open()
		}
		r.wait().completed("done")
		r.verify()
		t.Run("S-07 R-002-03 never more than three at the same time", func(t *testing.T) {
			if s.llm.Peak() != 3 {
				t.Error(s.llm.Peak())
			}
		})
		t.Run("S-07 R-002-24 replies in the order of the calls, under their own ids", func(t *testing.T) {
			var want []string
			for _, id := range ids {
				want = append(want, "call-"+id+"-go: "+id+": succeeded\n\n"+id+" says")
			}
			if diff := cmp.Diff(want, results(s.asked("lead")[1])); diff != "" {
				t.Error(diff)
			}
		})
	})
}

func TestS_08_S_09_Failures(t *testing.T) {
	broken := fakellm.Turn{Status: 500, Message: "out of order", Forever: true}
	eachScene(t, deskModels, deskWith("allow_parallel: true", "", ""), func(t *testing.T, s *scene) {
		s.script("lead", acts(gives("a", "1"), gives("b", "2"), gives("c", "3")), speaks("All three are done."))
		s.script("a", speaks("A says"))
		s.script("b", broken)
		s.script("c", speaks("C says"))
		r := s.play("desk", "go").completed("All three are done.")
		t.Run("S-08 R-002-3.2 R-002-8.1 two results and one error after all tries", func(t *testing.T) {
			got := results(s.asked("lead")[1])
			if len(got) != 3 || !strings.HasSuffix(got[0], "A says") || !strings.HasSuffix(got[2], "C says") {
				t.Error(got)
			}
			holds(t, got[1], "call-b-2: b: failed")
			if n := len(s.asked("b")); n != 3 {
				t.Errorf("%d attempts", n)
			}
		})
		t.Run("S-08 the failed delegation is listed whatever the leader claims", func(t *testing.T) {
			if diff := cmp.Diff([]string{"desk/b: failed UNAVAILABLE"}, r.lost()); diff != "" {
				t.Error(diff)
			}
		})
	})
	eachScene(t, deskModels, deskWith("allow_parallel: true", "", ""), func(t *testing.T, s *scene) {
		s.script("lead", acts(gives("a", "1"), gives("b", "2"), gives("c", "3")), speaks("Nothing worked."))
		for _, id := range []string{"a", "b", "c"} {
			s.script(id, broken)
		}
		r := s.play("desk", "go").completed("Nothing worked.")
		t.Run("S-09 R-002-3.3 R-002-34 the leader sees three errors, its answer is returned, all are listed and logged", func(t *testing.T) {
			for i, text := range results(s.asked("lead")[1]) {
				holds(t, text, string(rune('a'+i))+": failed")
			}
			if len(r.lost()) != 3 {
				t.Error(r.lost())
			}
			if n := s.logs.FilterMessage("member did not succeed").Len(); n != 3 {
				t.Errorf("%d of 3 are logged", n)
			}
		})
	})
}

func TestS_13_DelegationLimit(t *testing.T) {
	always := func(s *scene) {
		n := 0
		s.llm.Answer("lead-model", func(r *fakellm.Request) fakellm.Turn {
			if n++; len(r.Tools) == 0 {
				return speaks("in short")
			}
			return acts(gives("a", fmt.Sprint("task ", n)))
		})
		s.script("a", fakellm.Turn{Text: "ok", Forever: true})
	}
	eachScene(t, deskModels, deskWith("", "", ""), func(t *testing.T, s *scene) {
		t.Run("S-13 R-002-04 R-002-10.1 10 runs, then MAX_DELEGATIONS_EXCEEDED", func(t *testing.T) {
			always(s)
			r := s.play("desk", "go").failed(agent.ReasonMaxDelegations)
			if n := len(s.asked("a")); n != 10 {
				t.Errorf("%d runs", n)
			}
			for i := range 10 { // what was done is kept
				wantText(t, r.task(fmt.Sprint(2*i+2)), "ok")
			}
		})
	})
	eachScene(t, deskModels, deskWith("on_limit: FINALIZE", "", ""), func(t *testing.T, s *scene) {
		t.Run("S-13 FINALIZE: one turn without tools, and COMPLETED", func(t *testing.T) {
			always(s)
			s.play("desk", "go").completed("in short")
			last := s.asked("lead")
			if n := len(s.asked("a")); n != 10 || len(last[len(last)-1].Tools) != 0 {
				t.Error(n, last[len(last)-1].Tools)
			}
		})
	})
}

func TestS_14_Cycle(t *testing.T) {
	for name, set := range map[string]string{"": "", "strict": "strict_cycles: true"} {
		eachScene(t, deskModels, deskWith(set, "", ""), func(t *testing.T, s *scene) {
			t.Run("S-14 C-23 a leader that repeats member and text "+name, func(t *testing.T) {
				s.llm.Answer("lead-model", func(*fakellm.Request) fakellm.Turn { return acts(gives("a", "same")) })
				s.script("a", fakellm.Turn{Text: "ok", Forever: true})
				s.play("desk", "go").failed(agent.ReasonCycleDetected)
				want := map[string]int{"": 3, "strict": 2}[name]
				if len(s.asked("a")) != 1 || len(s.asked("lead")) != want {
					t.Errorf("%d runs in %d turns, want 1 in %d", len(s.asked("a")), len(s.asked("lead")), want)
				}
				if name == "" {
					holds(t, s.asked("lead")[2].Last(), "a second time")
				}
			})
		})
	}
}

func TestS_17_Empty(t *testing.T) {
	eachScene(t, deskModels, deskWith("", "", ""), func(t *testing.T, s *scene) {
		s.script("lead", acts(gives("a", "x")), speaks("done"))
		s.script("a", speaks(""))
		r := s.play("desk", "go").completed("done")
		t.Run("S-17 R-002-2.4 a placeholder for the leader, and the delegation is EMPTY", func(t *testing.T) {
			holds(t, s.asked("lead")[1].Last(), "(member returned no content)")
			if d := r.detailed().GetDelegations(); d[0].GetOutcome().String() != "OUTCOME_EMPTY" {
				t.Error(d)
			}
		})
	})
}

func TestS_20_Async(t *testing.T) {
	eachScene(t, deskModels, deskWith("async: true", "", ""), func(t *testing.T, s *scene) {
		gate, between := fakellm.NewGate(), fakellm.NewGate()
		s.script("lead", acts(gives("a", "search")), acts(fakellm.Call{ID: "k1", Name: "check_delegated_tasks", Arguments: "{}"}),
			fakellm.Turn{Gate: between, Calls: []fakellm.Call{{ID: "k2", Name: "check_delegated_tasks", Arguments: `{"wait_seconds":30}`}}}, speaks("found it"))
		s.script("a", fakellm.Turn{Text: "the page", Gate: gate})
		r := s.begin("desk", "go")
		s.arrived(gate, 1)
		s.arrived(between, 1)
		t.Run("S-20 R-003-11 a ticket while the member works; it works with GetTask", func(t *testing.T) {
			holds(t, results(s.asked("lead")[1])[0], r.id+"~2")
			holds(t, results(s.asked("lead")[2])[0], r.id+"~2\na: working")
			if state := r.task("2").GetStatus().GetState(); state != a2av1.TaskState_TASK_STATE_WORKING {
				t.Error(state)
			}
		})
		between.Open()
		gate.Open()
		r.wait().completed("found it")
		r.verify()
		t.Run("S-20 R-003-12 then the result", func(t *testing.T) {
			holds(t, results(s.asked("lead")[3])[0], "a: succeeded\n\nthe page")
			wantText(t, r.task("2"), "the page")
		})
	})

	eachScene(t, deskModels, deskWith("async: true", "", ""), func(t *testing.T, s *scene) {
		t.Run("S-20 C-28 a ticket works with CancelTask; the leader is told, and the others go on", func(t *testing.T) {
			gate := fakellm.NewGate()
			s.script("lead", acts(gives("a", "x"), gives("b", "y")), speaks("soon"), speaks("done"))
			s.script("a", fakellm.Turn{Text: "late", Gate: gate})
			s.script("b", speaks("B says"))
			r := s.begin("desk", "go")
			s.arrived(gate, 1)
			if _, err := s.clients[0].Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: r.id + "~2"}); err != nil {
				t.Fatal(err)
			}
			r.wait().completed("done")
			holds(t, s.asked("lead")[2].Last(), "a: canceled", "B says")
			r.verify()
			if state := r.task("2").GetStatus().GetState(); state != a2av1.TaskState_TASK_STATE_CANCELED {
				t.Error(state)
			}
		})
	})
}

func TestS_23_Duplicate(t *testing.T) {
	eachScene(t, deskModels, deskWith("async: true", "", ""), func(t *testing.T, s *scene) {
		t.Run("S-23 the same task of the same member while it is open: the first ticket, one model call", func(t *testing.T) {
			gate := fakellm.NewGate()
			s.script("lead", acts(gives("a", "x")), acts(gives("a", "x")), speaks("soon"), speaks("done"))
			s.script("a", fakellm.Turn{Text: "ok", Gate: gate})
			r := s.begin("desk", "go")
			s.arrived(gate, 1)
			ctx := t.Context()
			if err := s.llm.WaitFor(ctx, func(rs []fakellm.Request) bool { return len(rs) >= 3 }, "lead-model"); err != nil {
				t.Fatal(err)
			}
			gate.Open()
			r.wait().completed("done")
			r.verify()
			holds(t, results(s.asked("lead")[2])[0], "under way already, as "+r.id+"~2")
			if len(s.asked("a")) != 1 {
				t.Error(len(s.asked("a")))
			}
			if len(r.lost()) != 0 {
				t.Error("a duplicate is no failure: ", r.lost())
			}
		})
	})
}

func TestS_28_HistoryScopes(t *testing.T) {
	for scope, want := range map[string][]string{
		"PARENT_BRANCH": {"the request\n\ndesk: I look into it.\n\nb: succeeded\n\nB says\n\nthe task"},
		"LAST_RESULT":   {"the task"},
		"ISOLATED":      {"the task"},
	} {
		eachScene(t, deskModels, deskWith("", "", "history_scope: "+scope), func(t *testing.T, s *scene) {
			t.Run("S-28 C-14 R-004-12 R-004-16 "+scope, func(t *testing.T) {
				opening := acts(gives("b", "first"))
				opening.Text = "I look into it."
				s.script("lead", opening, acts(gives("a", "the task")), speaks("done"))
				s.script("a", speaks("A says"))
				s.script("b", speaks("B says"))
				s.play("desk", "the request").completed("done")
				var got []string
				for _, m := range s.asked("a")[0].Messages {
					got = append(got, m.Text)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
				if s.asked("a")[0].System != "You are A." {
					t.Error(s.asked("a")[0].System)
				}
			})
		})
	}
}

func TestS_29_SkipSummarization(t *testing.T) {
	file := strings.ReplaceAll(deskWith("allow_parallel: true", "", ""), "{agent: a}, {agent: b}, {agent: c}",
		"{agent: a, skip_summarization: true}, {agent: b, skip_summarization: true}, {agent: c}")
	eachScene(t, deskModels, file, func(t *testing.T, s *scene) {
		s.script("a", speaks("A says"), fakellm.Turn{Text: "A again", Delay: 50 * time.Millisecond})
		s.script("b", speaks("B says"))
		t.Run("S-29 R-004-17 one call: the leader is called once, the member's text is the answer", func(t *testing.T) {
			s.script("lead", acts(gives("a", "x")))
			s.play("desk", "one").completed("A says")
			if n := len(s.asked("lead")); n != 1 {
				t.Error(n)
			}
		})
		t.Run("S-29 R-004-18 C-16 two parallel calls: joined in the order of the calls", func(t *testing.T) {
			s.script("lead", acts(gives("a", "x"), gives("b", "y")))
			r := s.begin("desk", "two").wait()
			r.verify()
			if text := textOf(r.task("")); text != "## a\n\nA again\n\n## b\n\nB says" || len(s.asked("lead")) != 2 {
				t.Errorf("%q in %d turns", text, len(s.asked("lead")))
			}
		})
	})
}

func TestS_53_ModelsAndKeys(t *testing.T) {
	file := `agents:
  plain: {instructions: You have the leader's model.}
  own: {model: other, instructions: You have your own.}
teams:
  desk:
    members: [{agent: plain}, {agent: own}]
    coordinator: {leader: {model: lead}}
`
	eachScene(t, "lead other", file, func(t *testing.T, s *scene) {
		s.script("lead", acts(gives("plain", "x"), gives("own", "y")), speaks("by the lead's model"), speaks("done"))
		s.script("other", speaks("by its own"))
		s.play("desk", "go").completed("done")
		t.Run("S-53 R-003-14 C-26 a member without a model takes the leader's, with its key", func(t *testing.T) {
			reqs := s.asked("lead")
			if len(reqs) != 3 || reqs[1].System != "You have the leader's model." {
				t.Fatal(len(reqs))
			}
			for _, r := range reqs {
				if r.Auth != "Bearer "+rig.Secret+"-lead" {
					t.Errorf("request %d came with %q", r.N, r.Auth)
				}
			}
		})
		t.Run("S-53 R-003-15 another one has its own key, and the leader's is never sent there", func(t *testing.T) {
			if reqs := s.asked("other"); len(reqs) != 1 || reqs[0].Auth != "Bearer "+rig.Secret+"-other" {
				t.Error(reqs)
			}
		})
	})
}

// TestR_003_14_DetachedWork has a member work by itself that has no model of its own.
func TestR_003_14_DetachedWork(t *testing.T) {
	file := `agents:
  plain: {instructions: You have the leader's model.}
teams:
  desk:
    members: [{agent: plain}]
    coordinator: {leader: {model: lead}, async: true, on_open_delegations: DETACH}
`
	eachScene(t, "lead", file, func(t *testing.T, s *scene) {
		s.script("lead", acts(gives("plain", "x")), speaks("said"), speaks("said"))
		s.begin("desk", "go").wait().completed("said")
		i := slices.IndexFunc(s.asked("lead"), func(r fakellm.Request) bool { return len(results(r)) > 0 })
		_, ticket, _ := strings.Cut(results(s.asked("lead")[i])[0], "Under way as ")
		ticket, _, _ = strings.Cut(ticket, ".")
		t.Run("R-003-14 C-26 C-09 a task of its own takes the leader's model, too", func(t *testing.T) {
			wantText(t, s.until(ticket, ended), "said")
			for _, r := range s.asked("lead") {
				if r.Auth != "Bearer "+rig.Secret+"-lead" {
					t.Errorf("request %d came with %q", r.N, r.Auth)
				}
			}
		})
	})
}

// TestS_65_NewsOfALongResult has work that goes on by itself end with a long text.
func TestS_65_NewsOfALongResult(t *testing.T) {
	file := deskWith("async: true, on_open_delegations: DETACH, wake_on_completion: true", "", "")
	eachScene(t, deskModels, file, func(t *testing.T, s *scene) {
		s.script("lead", acts(gives("a", "dig")), speaks("said"), speaks("said"), speaks("and now"))
		s.script("a", speaks(strings.Repeat("gold ", 10_000)))
		root := s.begin("desk", "go").wait().completed("said").task("")
		i := slices.IndexFunc(s.asked("lead"), func(r fakellm.Request) bool { return len(results(r)) > 0 })
		_, ticket, _ := strings.Cut(results(s.asked("lead")[i])[0], "Under way as ")
		ticket, _, _ = strings.Cut(ticket, ".")
		s.until(ticket, ended)
		wantText(t, s.until((&agent.Run{Root: ticket}).ID("", "wake", 1), ended), "said")
		t.Run("S-64 S-65 the lead is told by reference, and can read on", func(t *testing.T) {
			i := slices.IndexFunc(s.asked("lead"), func(r fakellm.Request) bool {
				return strings.Contains(r.Messages[len(r.Messages)-1].Text, "has ended")
			})
			r := s.asked("lead")[i]
			text := r.Messages[len(r.Messages)-1].Text
			holds(t, text, "The task "+ticket+" that a was given has ended: succeeded.", "read on with read_result")
			if len(text) > agent.MaxResult+500 || !slices.Contains(r.Tools, "read_result") {
				t.Errorf("%d bytes, with %v", len(text), r.Tools)
			}
		})
		t.Run("R-002-30 C-09 of an earlier turn it is told that the work had begun, not that it was done", func(t *testing.T) {
			m := rig.Text("desk", "later", "and?")
			m.Message.ContextId = root.GetContextId()
			if _, err := s.clients[0].Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			holds(t, s.asked("lead")[3].Messages[0].Text, `a was asked "dig": "begun as task `+ticket)
		})
	})
}

func TestS_54_LeastPrivilege(t *testing.T) {
	eachScene(t, deskModels, deskWith("async: true", "", ""), func(t *testing.T, s *scene) {
		s.script("lead", acts(gives("a", "x")), speaks("soon"), speaks("done"))
		s.script("a", acts(gives("b", "do my work"), fakellm.Call{ID: "t", Name: "check_delegated_tasks", Arguments: "{}"}), speaks("alone then"))
		r := s.play("desk", "go").completed("done")
		t.Run("S-54 a tool error in the member's own loop, and nothing is run", func(t *testing.T) {
			reqs := s.asked("a")
			if len(reqs[0].Tools) != 0 || len(s.asked("b")) != 0 {
				t.Error(reqs[0].Tools, len(s.asked("b")))
			}
			for _, text := range results(reqs[1]) {
				holds(t, text, "there is no tool")
			}
			if len(r.lost()) != 0 {
				t.Error(r.lost())
			}
		})
	})
}

func TestS_64_LargeResult(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	eachScene(t, deskModels, deskWith("", "", ""), func(t *testing.T, s *scene) {
		s.script("a", speaks(big))
		readOn := func(r *fakellm.Request, offset int) fakellm.Turn {
			shown := r.Last()
			_, name, _ := strings.Cut(shown, `result "`)
			name, _, _ = strings.Cut(name, `"`)
			return acts(fakellm.Call{ID: "r", Name: "read_result", Arguments: fmt.Sprintf(`{"id":%q,"offset":%d}`, name, offset)})
		}
		step := 0
		s.llm.Answer("lead-model", func(r *fakellm.Request) fakellm.Turn {
			switch step++; step {
			case 1:
				return acts(gives("a", "write"), gives("b", "read"))
			case 2:
				return speaks("done")
			}
			return speaks("?")
		})
		s.llm.Answer("b-model", func(r *fakellm.Request) fakellm.Turn {
			if len(r.Messages) > 0 && r.Messages[len(r.Messages)-1].Role == "tool" {
				return speaks("the end is " + r.Last()[:16])
			}
			return readOn(r, len(big)-16)
		})
		r := s.play("desk", "go").completed("done")
		t.Run("S-64 C-31 the leader's reply is capped and names the result", func(t *testing.T) {
			got := results(s.asked("lead")[1])[0]
			holds(t, got, r.id+"~2", "read_result", "1048576 bytes")
			if len(got) > 20<<10 {
				t.Error(len(got))
			}
		})
		t.Run("S-64 the next member fetches it through a tool", func(t *testing.T) {
			reqs := s.asked("b")
			if !slices.Contains(reqs[0].Tools, "read_result") || len(reqs[0].Last()) > 20<<10 {
				t.Error(reqs[0].Tools, len(reqs[0].Last()))
			}
			holds(t, reqs[1].Last(), "0123456789abcdef")
		})
		t.Run("S-64 the client gets it whole", func(t *testing.T) {
			wantText(t, r.task("2"), big)
		})
	})
}

func TestS_59_RosterInFlight(t *testing.T) {
	eachScene(t, deskModels, deskWith("", "", ""), func(t *testing.T, s *scene) {
		gate := fakellm.NewGate()
		s.script("lead", acts(gives("a", "x")), acts(gives("b", "y"), gives("c", "z")), speaks("done"), speaks("again"))
		s.script("a", fakellm.Turn{Text: "A says", Gate: gate})
		s.script("c", speaks("C says"))
		r := s.begin("desk", "go")
		s.arrived(gate, 1)
		changed := strings.Replace(s.file, "{agent: a}, {agent: b}, {agent: c}", "{agent: a, enabled: false}, {agent: b, enabled: false}", 1)
		changed = strings.Replace(changed, "  c: {model: c, instructions: You are C.}\n", "  d: {model: c, instructions: You are D.}\n", 1)
		changed = strings.Replace(changed, "{agent: b, enabled: false}]", "{agent: b, enabled: false}, {agent: d}]", 1)
		if err := s.live.Refresh(s.t.Context(), s.define(changed)); err != nil {
			t.Fatal(err)
		}
		gate.Open()
		r.wait().completed("done")
		r.verify()
		t.Run("S-59 R-002-13 R-002-28 who is at work goes on; choices are those of the beginning; who was disabled is refused, and who was removed works", func(t *testing.T) {
			wantText(t, r.task("2"), "A says")
			if got := s.asked("lead")[1].Tools; !slices.Contains(got, "delegate_to_b") || slices.Contains(got, "delegate_to_d") {
				t.Error(got)
			}
			if diff := cmp.Diff([]string{"desk/b: rejected DISABLED"}, r.lost()); diff != "" {
				t.Error(diff)
			}
			if len(s.asked("b")) != 0 || len(s.asked("c")) != 1 {
				t.Error("the wrong members were called")
			}
		})
		t.Run("S-59 the next run sees the change", func(t *testing.T) {
			s.play("desk", "once more").completed("again")
			reqs := s.asked("lead")
			if diff := cmp.Diff([]string{"delegate_to_d"}, reqs[len(reqs)-1].Tools); diff != "" {
				t.Error(diff)
			}
		})
	})
}

// TestR_002_20_Entries has the unary and the streaming entry give the same answer.
func TestR_002_20_Entries(t *testing.T) {
	eachScene(t, deskModels, deskWith("", "", ""), func(t *testing.T, s *scene) {
		s.llm.Answer("lead-model", func(r *fakellm.Request) fakellm.Turn {
			if len(r.Messages) == 1 {
				return acts(gives("a", "x"))
			}
			return speaks("done")
		})
		s.script("a", fakellm.Turn{Text: "A says", Forever: true})
		for i, c := range s.clients {
			t.Run("R-002-20 R-003-05 "+c.Binding(), func(t *testing.T) {
				req := func(kind string) *a2av1.SendMessageRequest {
					return &a2av1.SendMessageRequest{Tenant: "desk", Message: agent.UserMessage(fmt.Sprint(kind, i), "go")}
				}
				resp, err := c.Send(t.Context(), req("send"))
				if err != nil {
					t.Fatal(err)
				}
				wantText(t, resp.GetTask(), "done")
				var last *a2av1.TaskStatusUpdateEvent
				for u, err := range c.Stream(t.Context(), req("stream")) {
					if err != nil {
						t.Fatal(err)
					}
					if u.GetStatusUpdate() != nil {
						last = u.GetStatusUpdate()
					}
				}
				if last.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
					t.Error(last)
				}
				if run := a2a.RunOf(last.GetMetadata()); len(run.GetFailedDelegations()) != 0 {
					t.Error(run)
				}
			})
		}
	})
}

// TestR_002_31_Timeout has a run whose time is over while two of three members work.
func TestR_002_31_Timeout(t *testing.T) {
	eachScene(t, deskModels, deskWith("allow_parallel: true", "timeout: 400ms", ""), func(t *testing.T, s *scene) {
		s.script("lead", acts(gives("a", "1"), gives("b", "2"), gives("c", "3")))
		s.script("a", speaks("A says"))
		s.script("b", fakellm.Turn{Text: "late", Gate: fakellm.NewGate()})
		s.script("c", fakellm.Turn{Text: "late", Gate: fakellm.NewGate()})
		r := s.play("desk", "go").failed(agent.ReasonTimeout)
		t.Run("R-002-31 R-002-3.4 R-002-8.3 what has ended is kept, what works is ended, its requests closed", func(t *testing.T) {
			wantText(t, r.task("2"), "A says")
			if diff := cmp.Diff([]string{"desk/b: timed_out TIMEOUT_EXCEEDED", "desk/c: timed_out TIMEOUT_EXCEEDED"}, r.lost()); diff != "" {
				t.Error(diff)
			}
			for _, id := range []string{"b", "c"} {
				if !s.asked(id)[0].Gone {
					t.Errorf("the request of %s was answered", id)
				}
			}
		})
		t.Run("R-002-31 the task has the result of the one that ended as an artifact", func(t *testing.T) {
			if task := r.task(""); textOf(task) != "A says" {
				t.Error(task.GetArtifacts())
			}
		})
	})
	eachScene(t, deskModels, deskWith("", "member_timeout: 300ms", ""), func(t *testing.T, s *scene) {
		t.Run("R-002-31 R-002-06 a member's time is over: the leader goes on", func(t *testing.T) {
			s.script("lead", acts(gives("a", "1"), gives("b", "2")), speaks("done"))
			s.script("a", fakellm.Turn{Text: "late", Gate: fakellm.NewGate()})
			s.script("b", speaks("B says"))
			r := s.play("desk", "go").completed("done")
			if diff := cmp.Diff([]string{"desk/a: timed_out TIMEOUT_EXCEEDED"}, r.lost()); diff != "" {
				t.Error(diff)
			}
			holds(t, s.asked("b")[0].Last(), "a: timed_out (TIMEOUT_EXCEEDED)")
		})
	})
}

// TestR_004_01_Modes asks teams of both styles what they are.
func TestR_004_01_Modes(t *testing.T) {
	s := newScene(t, rig.Memory(t), deskModels, strings.Replace(deskWith("", "", ""), "teams:\n", "teams:\n  hand:\n    members: [{agent: a}]\n    swarm: {entry_member: a}\n", 1), map[string]string{})
	for id, mode := range map[string]string{"desk": "coordinator", "hand": "swarm"} {
		info, err := s.agents.Info(s.grpc.Context(t.Context()), &teamv1.InfoRequest{AgentId: id})
		if err != nil || info.GetInfo().GetMetadata()["mode"] != mode {
			t.Error(info, err)
		}
	}
}
