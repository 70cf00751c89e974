package team_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/broadcast"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// lasting is a member that takes its time, unless its context ends.
func lasting(id string, d time.Duration) *agent.Func {
	return &agent.Func{ID: id, Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		if err := agent.Sleep(ctx, d); err != nil {
			return nil, err
		}
		return agent.NewMessage(id + "(" + agent.Text(m) + ")"), nil
	}}
}

// endsOf are the outcomes and times of the steps of a record, by scope.
func endsOf(r *record) map[string]*teamv1.Event {
	ends := map[string]*teamv1.Event{}
	for _, ev := range r.events {
		if ev.GetEnded() != nil {
			ends[ev.GetScope()] = ev
		}
	}
	return ends
}

func TestWorkflow_StepTimeAndRetry(t *testing.T) {
	busy := &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Fresh: true, Message: "busy"}
	t.Run("R-002-23 R-002-32 a step's retry is its own", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Time
			reg := registry{"a": &agent.Func{ID: "a", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
				if at = append(at, time.Now()); len(at) < 4 {
					return nil, busy
				}
				return agent.NewMessage("at last"), nil
			}}}
			w := flow(t, workflow.Step{ID: "1", Member: "a", Retry: &teamv1.Retry{Attempts: proto.Int32(4), Backoff: durationpb.New(time.Minute)}, Timeout: time.Hour})
			tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: w, Registry: reg, Limits: &teamv1.Limits{Timeout: durationpb.New(2 * time.Hour)},
				Members: []team.Member{{Agent: "a", Retry: &teamv1.Retry{Attempts: proto.Int32(2)}}}})
			if answer, err := ask(t, tm, "x"); err != nil || answer != "at last" {
				t.Error(answer, err)
			}
			if len(at) != 4 || at[1].Sub(at[0]) < time.Minute || at[3].Sub(at[2]) < 4*time.Minute {
				t.Error(at)
			}
		})
	})
	t.Run("R-002-23 one attempt is none more, whatever the team says", func(t *testing.T) {
		calls := 0
		reg := registry{"a": &agent.Func{ID: "a", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			calls++
			return nil, busy
		}}}
		w := flow(t, workflow.Step{ID: "1", Member: "a", Retry: &teamv1.Retry{Attempts: proto.Int32(1)}})
		_, err := ask(t, newTeamWith(t, team.Config{ID: "t1", Scheduler: w, Registry: reg, Members: members("a")}), "x")
		wantReason(t, err, agent.ReasonUnavailable)
		if calls != 1 {
			t.Error(calls)
		}
	})
	t.Run("R-002-32 an agent's own retry holds in a team, unless the member says otherwise", func(t *testing.T) {
		for _, tt := range []struct {
			own, member *teamv1.Retry
			want        int
		}{
			{nil, nil, 3},
			{&teamv1.Retry{Attempts: proto.Int32(1)}, nil, 1},
			{&teamv1.Retry{Attempts: proto.Int32(1)}, &teamv1.Retry{Attempts: proto.Int32(2)}, 2},
		} {
			calls := 0
			m := failingModel(func() error { calls++; return busy })
			a, err := leader.NewAgent(leader.AgentConfig{ID: "a", Model: m, Limits: &teamv1.Limits{Retry: tt.own}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = ask(t, newTeamWith(t, team.Config{
				ID: "t1", Scheduler: flow(t, workflow.Step{ID: "1", Member: "a"}), Registry: registry{"a": a},
				Limits: &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(1)}}, Members: []team.Member{{Agent: "a", Retry: tt.member}},
			}), "x")
			wantReason(t, err, agent.ReasonUnavailable)
			if calls != tt.want {
				t.Errorf("%v, %v: %d calls, want %d", tt.own, tt.member, calls, tt.want)
			}
		}
	})
	t.Run("R-002-8.2 a step's time bounds all of its attempts, and nobody else's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := flow(t, workflow.Step{ID: "short", Member: "slow", Timeout: 5 * time.Second}, workflow.Step{ID: "long", Member: "slow"})
			tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: w, Registry: registry{"slow": lasting("slow", 30*time.Second)}, Members: members("slow"), ReportErrors: true})
			r, start := newRecord(), time.Now()
			r.process(t.Context(), tm, nil)
			ends := endsOf(r)
			if ends["1"].GetEnded().GetOutcome() != teamv1.Outcome_OUTCOME_TIMED_OUT || ends["1"].GetTime().AsTime().Sub(start) != 5*time.Second {
				t.Error(ends["1"])
			}
			if ends["2"].GetEnded().GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED || agent.Text(r.reply.GetMessage()) != "slow(tides)" {
				t.Error(ends["2"], r.reply, r.err)
			}
		})
	})
	t.Run("a question's time is how long it stays open", func(t *testing.T) {
		w := flow(t, workflow.Step{ID: "ok", Human: &workflow.Human{Question: "Sure?"}, Timeout: time.Hour})
		r := newRecord()
		r.process(t.Context(), newTeamWith(t, team.Config{ID: "t1", Scheduler: w}), nil)
		for _, ev := range r.events {
			if q := ev.GetAsked(); q != nil {
				if left := q.GetExpires().AsTime().Sub(ev.GetTime().AsTime()); left < 50*time.Minute || left > time.Hour {
					t.Error(left)
				}
				return
			}
		}
		t.Error("nobody was asked")
	})
}

func TestDecision_Cancel(t *testing.T) {
	t.Run("S-18 losers of a join are canceled at once and do not fail the run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			reg := registry{"slow": lasting("slow", time.Hour), "fast": lasting("fast", time.Second), "asker": &asker{worker{w: w, name: "asker"}}}
			reg["deep"] = newTeamWith(t, team.Config{ID: "deep", Registry: reg, Members: members("slow"), Scheduler: inOrder("slow")})
			reg["end"] = lasting("end", 10*time.Second)
			s := flow(t, workflow.Step{ID: "deep", Member: "deep"}, workflow.Step{ID: "ask", Member: "asker"}, workflow.Step{ID: "people", Human: &workflow.Human{Question: "Well?"}},
				workflow.Step{ID: "fast", Member: "fast"}, workflow.Step{ID: "slow", Member: "slow"},
				workflow.Step{ID: "end", Member: "end", After: []string{"deep", "ask", "people", "fast", "slow"}, Join: workflow.JoinAny})
			tm := newTeamWith(t, team.Config{ID: "root", Scheduler: s, Registry: reg, Members: members(sortedKeys(reg)...), Limits: &teamv1.Limits{MaxParallel: proto.Int32(9)}})
			r := newRecord()
			start := time.Now()
			r.process(t.Context(), tm, nil)
			if got := agent.Text(r.reply.GetMessage()); got != "end(fast(tides))" {
				t.Error(got, r.err)
			}
			if bad := unended(r.events); len(bad) > 0 {
				t.Error(bad)
			}
			ends := endsOf(r)
			for _, scope := range []string{"1", "1.1", "2", "3", "5"} {
				if e := ends[scope]; e.GetEnded().GetOutcome() != teamv1.Outcome_OUTCOME_CANCELED || e.GetTime().AsTime().Sub(start) != time.Second {
					t.Errorf("%s: %v", scope, e)
				}
			}
			cancels := 0
			for _, ev := range r.events {
				if c := ev.GetDecided().GetCancel(); len(c) > 0 {
					cancels++
					if diff := cmp.Diff([]string{"1", "2", "3", "5"}, c); diff != "" || !strings.Contains(ev.GetDecided().GetReason(), "went on without it") {
						t.Error(ev.GetDecided(), diff)
					}
				}
			}
			if cancels != 1 {
				t.Errorf("%d decisions cancel", cancels)
			}
		})
	})
	t.Run("an id that names no open step is none", func(t *testing.T) {
		tm := newTeam(t, registry{"a": skilled("a")}, next(func(s *team.State) (team.Decision, error) {
			switch {
			case len(s.Steps) == 0:
				return team.Decision{Steps: []*teamv1.Step{to("a")}, Cancel: []string{"1", "7", "x", ""}}, nil
			case s.Rounds == 1 && len(s.Context) == 0:
				return team.Decision{Reply: s.Last.Message, Cancel: []string{"1"}}, nil
			}
			return team.Decision{}, nil
		}), "a")
		if answer, err := ask(t, tm, "x"); err != nil || answer != "a(x)" {
			t.Error(answer, err)
		}
	})
	t.Run("what is dropped before it began never does", func(t *testing.T) {
		var d diary
		reg := d.crew("a", "b")
		tm := newTeamWith(t, team.Config{ID: "t1", Registry: reg, Members: members("a", "b"), Limits: &teamv1.Limits{MaxParallel: proto.Int32(1)}, Scheduler: next(func(s *team.State) (team.Decision, error) {
			switch {
			case len(s.Steps) == 0:
				a, b := to("a"), to("b")
				a.Async, b.Async = true, true
				return team.Decision{Steps: []*teamv1.Step{a, b}}, nil
			case !s.Steps[1].Dropped:
				return team.Decision{Cancel: []string{"2"}, Reason: "b is not needed"}, nil
			case len(s.Open()) > 0:
				return team.Decision{}, nil
			}
			return team.Decision{Reply: s.Steps[0].Message}, nil
		})})
		answer, err := ask(t, tm, "x")
		if err != nil || answer != "a(x)" || slices.Contains(d.all(), "b < x") {
			t.Error(answer, err, d.all())
		}
	})
}

func TestWorkflowTeam_ContinuePartial(t *testing.T) {
	no := agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no such book")
	t.Run("S-19 C-06 what comes after a failure is SKIPPED, the rest is the answer", func(t *testing.T) {
		reg := registry{"a": skilled("a"), "b": failing("b", no), "c": skilled("c")}
		w := flow(t, workflow.Step{ID: "1", Member: "a"}, workflow.Step{ID: "2", Member: "b", After: []string{"1"}},
			workflow.Step{ID: "3", Member: "c", After: []string{"2"}}, workflow.Step{ID: "4", Member: "c", After: []string{"1"}})
		r := newRecord()
		r.process(t.Context(), newTeamWith(t, team.Config{ID: "root", Scheduler: w, Registry: reg, Members: members("a", "b", "c"), ReportErrors: true}), nil)
		if got := agent.Text(r.reply.GetMessage()); got != "c(a(tides))" {
			t.Error(got, r.err)
		}
		var got []string
		for scope, ev := range endsOf(r) {
			got = append(got, scope+" "+expr.OutcomeWord(ev.GetEnded().GetOutcome()))
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"1 succeeded", "2 failed", "3 succeeded", "4 skipped"}, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("S-19 R-000-27 nothing succeeded: the run fails with the first error", func(t *testing.T) {
		reg := registry{"b": failing("b", no), "c": skilled("c")}
		w := flow(t, workflow.Step{ID: "2", Member: "b"}, workflow.Step{ID: "3", Member: "c", After: []string{"2"}})
		_, err := ask(t, newTeamWith(t, team.Config{ID: "root", Scheduler: w, Registry: reg, Members: members("b", "c"), ReportErrors: true}), "x")
		wantReason(t, err, agent.ReasonAgentNotFound)
	})
	t.Run("S-19 a quorum that cannot be reached any more is not", func(t *testing.T) {
		reg := registry{"a": skilled("a"), "b": failing("b", no)}
		w := flow(t, workflow.Step{ID: "1", Member: "a"}, workflow.Step{ID: "2", Member: "b"}, workflow.Step{ID: "3", Member: "b"},
			workflow.Step{ID: "4", Member: "a", After: []string{"1", "2", "3"}, Join: workflow.JoinQuorum, Quorum: 2})
		r := newRecord()
		r.process(t.Context(), newTeamWith(t, team.Config{ID: "root", Scheduler: w, Registry: reg, Members: members("a", "b"), ReportErrors: true}), nil)
		if got := agent.Text(r.reply.GetMessage()); got != "a(tides)" || endsOf(r)["4"].GetEnded().GetOutcome() != teamv1.Outcome_OUTCOME_SKIPPED {
			t.Error(got, r.err, endsOf(r)["4"])
		}
	})
}

func TestBroadcast(t *testing.T) {
	texts := func(req *agent.ModelRequest) []string {
		var out []string
		for _, m := range req.Messages {
			out = append(out, string(m.Role)+": "+m.Text)
		}
		return out
	}
	inWaves := func(t *testing.T, reg registry, m agent.Model, edit func(*team.Config)) *team.Team {
		c := team.Config{ID: "t1", Name: "Round", Scheduler: broadcast.New(broadcast.Config{Instructions: "Be brief."}), Model: m, Registry: reg, Members: members(sortedKeys(reg)...), ReportErrors: true}
		if edit != nil {
			edit(&c)
		}
		return newTeamWith(t, c)
	}
	t.Run("C-04 S-14 all get the same message, at the same time, and the model writes the answer", func(t *testing.T) {
		m := &turnsOf{turns: []*teamv1.Turn{{Text: "Both agree."}}}
		var d diary
		var both sync.WaitGroup
		both.Add(2)
		meet := func(text string) (string, error) { // ends when the other one works as well
			both.Done()
			both.Wait()
			return "yes to " + text, nil
		}
		reg := registry{"a": d.says("a", meet), "b": d.says("b", meet)}
		answer, err := ask(t, inWaves(t, reg, m, nil), "tides?")
		if err != nil || answer != "Both agree." {
			t.Error(answer, err)
		}
		calls := d.all()
		slices.Sort(calls)
		if diff := cmp.Diff([]string{"a < tides?", "b < tides?"}, calls); diff != "" {
			t.Error(diff)
		}
		want := []string{"user: tides?", "user: Result of a: succeeded\n\nyes to tides?", "user: Result of b: succeeded\n\nyes to tides?"}
		if diff := cmp.Diff(want, texts(m.requests[0])); diff != "" || !strings.HasPrefix(m.requests[0].Instructions, "Be brief.\n\nYou write the answer of the team \"Round\"") {
			t.Error(diff, m.requests[0].Instructions)
		}
	})
	t.Run("C-04 R-002-39 the model is told who failed", func(t *testing.T) {
		m := &turnsOf{turns: []*teamv1.Turn{{Text: "One of two."}}}
		reg := registry{"a": failing("a", agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no such book")), "b": skilled("b")}
		answer, err := ask(t, inWaves(t, reg, m, nil), "x")
		if err != nil || answer != "One of two." || texts(m.requests[0])[1] != "user: Result of a: failed (AGENT_NOT_FOUND)\n\nno such book" {
			t.Error(answer, err, texts(m.requests[0]))
		}
	})
	t.Run("C-04 all failed: the first error, and no model is asked", func(t *testing.T) {
		m := &turnsOf{turns: []*teamv1.Turn{{Text: "?"}}}
		reg := registry{"a": failing("a", agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no such book"))}
		_, err := ask(t, inWaves(t, reg, m, nil), "x")
		wantReason(t, err, agent.ReasonAgentNotFound)
		if len(m.requests) > 0 {
			t.Error("the model was asked")
		}
	})
	t.Run("C-11 who is disabled is not asked; nobody enabled is an error", func(t *testing.T) {
		m := &turnsOf{turns: []*teamv1.Turn{{Text: "fine"}}}
		reg := registry{"a": skilled("a"), "b": skilled("b")}
		if _, err := ask(t, inWaves(t, reg, m, func(c *team.Config) { c.Members[0].Disabled = true }), "x"); err != nil || len(m.requests[0].Messages) != 2 {
			t.Error(err, texts(m.requests[0]))
		}
		_, err := ask(t, inWaves(t, reg, m, func(c *team.Config) { c.Members[0].Disabled, c.Members[1].Disabled = true, true }), "x")
		wantReason(t, err, agent.ReasonTeamError)
	})
	t.Run("C-05 a model without words is no answer", func(t *testing.T) {
		_, err := ask(t, inWaves(t, registry{"a": skilled("a")}, &turnsOf{turns: []*teamv1.Turn{{Text: " "}, {Text: ""}}}, nil), "x")
		wantReason(t, err, agent.ReasonNoResponse)
		m := &turnsOf{turns: []*teamv1.Turn{{Text: " "}, {Text: "here"}}}
		if answer, err := ask(t, inWaves(t, registry{"a": skilled("a")}, m, nil), "x"); err != nil || answer != "here" || !strings.Contains(lastSaid(m.requests[1]), "was empty") {
			t.Error("it is asked once more: ", answer, err)
		}
	})
	t.Run("R-000-27 the model's failure is the run's", func(t *testing.T) {
		_, err := ask(t, inWaves(t, registry{"a": skilled("a")}, &turnsOf{}, nil), "x")
		if e := wantReason(t, err, agent.ReasonUnavailable); !strings.Contains(e.Message, "500") {
			t.Error(e)
		}
	})
	t.Run("what the user says meanwhile is heard", func(t *testing.T) {
		m := &turnsOf{turns: []*teamv1.Turn{{Text: "Nothing yet."}, {Text: "Now for Friday."}}}
		tm := inWaves(t, registry{"a": skilled("a")}, m, func(c *team.Config) { c.ID = "root" })
		r := newRecord()
		r.process(t.Context(), tm, func(ev *teamv1.Event) bool {
			if ev.GetEnded().GetTurn().GetText() == "Nothing yet." {
				r.run.Deliver(&teamv1.Inbound{N: 1, Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage("m-2", "for Friday")}}})
			}
			return true
		})
		if got := agent.Text(r.reply.GetMessage()); got != "Now for Friday." || len(m.requests) != 2 {
			t.Fatal(got, r.err)
		}
		want := []string{"user: tides", "user: Result of a: succeeded\n\na(tides)", "assistant: Nothing yet.", "user: for Friday"}
		if diff := cmp.Diff(want, texts(m.requests[1])); diff != "" {
			t.Error(diff)
		}
	})
}

// TestC_16_Joins: an answer that joins results names their steps, one that does not
// names none.
func TestC_16_Joins(t *testing.T) {
	reg := registry{"a": skilled("a"), "b": skilled("b"), "c": failing("c", agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no"))}
	last := next(func(s *team.State) (team.Decision, error) {
		if len(s.Steps) == 0 {
			return delegateTo("a", "c", "b"), nil
		}
		return team.Decision{Reply: s.Last.Message}, nil
	})
	for name, tt := range map[string]struct {
		s    team.Scheduler
		want []string
	}{
		"C-16 the last response of several, of those that answered": {last, []string{"1", "3"}},
		"C-16 a parallel last wave":                                 {flow(t, workflow.Step{ID: "x", Member: "a"}, workflow.Step{ID: "y", Member: "b"}), []string{"1", "2"}},
		"C-16 one result":                                           {inOrder("a", "b"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecord()
			r.process(t.Context(), newTeamWith(t, team.Config{ID: "root", Scheduler: tt.s, Registry: reg, Members: members("a", "b", "c"), ReportErrors: true}), nil)
			final := r.events[len(r.events)-1].GetDecided()
			if diff := cmp.Diff(tt.want, final.GetJoins()); diff != "" || final.GetReply() == nil {
				t.Error(final, diff, r.err)
			}
		})
	}
}

// TestR_004_14_Inner: what readers are shown of a member is on record with its steps.
func TestR_004_14_Inner(t *testing.T) {
	reg := registry{"a": skilled("a"), "b": skilled("b"), "c": skilled("c")}
	tm := newTeamWith(t, team.Config{ID: "root", Registry: reg, Scheduler: inOrder("a", "b", "c"), Members: []team.Member{{Agent: "a"}, {Agent: "b", StreamInner: true}, {Agent: "c", StreamInner: true, HideText: true}}})
	r := newRecord()
	r.process(t.Context(), tm, nil)
	var got []string
	for _, ev := range r.events {
		for _, s := range ev.GetDecided().GetSteps() {
			got = append(got, fmt.Sprint(s.GetMember(), " ", s.GetInner()))
		}
	}
	if diff := cmp.Diff([]string{"a INNER_UNSPECIFIED", "b INNER_TEXT", "c INNER_EVENTS"}, got); diff != "" {
		t.Error(diff)
	}
}

// failingModel is a model whose turns fail.
type failingModel func() error

func (failingModel) Name() string { return "failing" }

func (m failingModel) Generate(context.Context, *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) { yield(agent.ModelChunk{}, m()) }
}
