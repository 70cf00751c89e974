package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// record is a journal in memory: it drives an agent once, on top of what is there.
type record struct {
	run    *agent.Run
	events []*teamv1.Event
	reply  *teamv1.Reply
	err    error
}

func newRecord() *record { return &record{run: &agent.Run{Root: crashRoot, Seed: 1}} }

// process calls a once with what is on record. see is called with each event
// once it has its place.
func (r *record) process(ctx context.Context, a agent.Agent, see func(ev *teamv1.Event) bool) {
	req := &teamv1.ProcessRequest{AgentId: "root", Message: agent.UserMessage("m-1", "tides"), Recorded: slices.Clone(r.events)}
	r.reply, r.err = nil, nil
	for ev, err := range a.Process(agent.With(ctx, r.run), req) {
		if err != nil {
			r.err = err
			continue
		}
		if rep := ev.GetReply(); rep != nil && ev.GetScope() == "" {
			r.reply = rep
			continue
		}
		ev.Seq, ev.Time = int64(len(r.events)+2), timestamppb.Now()
		r.events = append(r.events, ev)
		if see != nil && !see(ev) {
			return
		}
	}
}

// unended returns the scopes of steps that began and have no end, or several.
func unended(events []*teamv1.Event) []string {
	began, ends := map[string]bool{}, map[string]int{}
	for _, ev := range events {
		if ev.GetScope() == "" {
			continue
		}
		if ev.GetStarted() != nil {
			began[ev.GetScope()] = true
		}
		if ev.GetEnded() != nil {
			ends[ev.GetScope()]++
		}
	}
	var bad []string
	for scope := range began {
		if ends[scope] != 1 {
			bad = append(bad, fmt.Sprintf("%s: %d ends", scope, ends[scope]))
		}
	}
	return bad
}

func answerTo(ev *teamv1.Event, text string) *teamv1.Inbound {
	q := ev.GetAsked().GetQuestion()
	return &teamv1.Inbound{N: 1, Scope: ev.GetScope(), Key: q, Kind: &teamv1.Inbound_Answered{Answered: &teamv1.Answered{
		Question: q, Message: agent.UserMessage("a-"+text, text),
	}}}
}

func human(question string) *teamv1.Step {
	return &teamv1.Step{Kind: teamv1.Step_KIND_HUMAN, Ask: &teamv1.Ask{Question: question}}
}

// batches has the batches run one after the other and returns what the first step answered.
func batches(all ...[]*teamv1.Step) team.Scheduler {
	return next(func(s *team.State) (team.Decision, error) {
		n := 0
		for _, b := range all {
			if len(s.Steps) == n {
				return team.Decision{Steps: b}, nil
			}
			n += len(b)
		}
		return team.Decision{Reply: s.Steps[0].Message}, nil
	})
}

func to(member string) *teamv1.Step {
	return &teamv1.Step{Kind: teamv1.Step_KIND_DELEGATE, Member: member}
}

// TestAnswer_OvertakesWaiting has the answer on record before the word that the step waits
// for it: the step goes on all the same.
func TestAnswer_OvertakesWaiting(t *testing.T) {
	w := newWorld(t)
	reg := registry{"asker": &asker{worker{w: w, name: "asker"}}, "b": skilled("b")}
	tm := newTeamWith(t, team.Config{ID: "root", Scheduler: batches([]*teamv1.Step{to("asker"), to("b")}), Members: members("asker", "b"), Registry: reg})
	r := newRecord()
	r.process(t.Context(), tm, func(ev *teamv1.Event) bool {
		if ev.GetAsked() != nil {
			r.run.Deliver(answerTo(ev, "yes"))
		}
		return true
	})
	if r.reply == nil {
		t.Error("no reply", r.err, r.events)
	}
}

// TestListener_HandsOn closes a loop that has an input and has not taken it: the loop
// above gets it.
func TestListener_HandsOn(t *testing.T) {
	run := &agent.Run{}
	outer, inner := run.Listen(""), run.Listen("2")
	defer outer.Close()
	run.Deliver(&teamv1.Inbound{N: 1, Scope: "2.1", Kind: &teamv1.Inbound_Answered{}})
	inner.Close()
	if got := outer.Take(); len(got) != 1 {
		t.Error(got)
	}
}

// TestI1_CancelBetweenAttempts crashes between two attempts and is canceled then.
func TestI1_CancelBetweenAttempts(t *testing.T) {
	busy := &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Fresh: true, Message: "busy"}
	tm := newTeam(t, registry{"a": failing("a", busy)}, inOrder("a"), "a")
	r := newRecord()
	r.process(t.Context(), tm, func(ev *teamv1.Event) bool { return ev.GetRetried() == nil })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(agent.ErrCanceled)
	r.process(ctx, tm, nil)
	if bad := unended(r.events); len(bad) > 0 {
		t.Error(bad)
	}
}

// TestC_28_CancelOfAQuestion cancels a step that waits for people, at rest.
func TestC_28_CancelOfAQuestion(t *testing.T) {
	for _, nested := range []bool{false, true} {
		t.Run(fmt.Sprint(nested), func(t *testing.T) {
			reg := registry{"b": skilled("b")}
			inner := newTeamWith(t, team.Config{ID: "inner", ReportErrors: true, Registry: reg, Members: members("b"), Scheduler: next(func(s *team.State) (team.Decision, error) {
				if len(s.Steps) == 0 {
					return team.Decision{Steps: []*teamv1.Step{human("well?")}}, nil
				}
				return team.Decision{Reply: agent.NewMessage("inner done")}, nil
			})})
			reg["inner"] = inner
			scope := "1"
			var top agent.Agent = inner
			if nested {
				scope = "1.1"
				top = newTeamWith(t, team.Config{ID: "root", Scheduler: inOrder("inner"), Registry: reg, Members: members("inner")})
			}
			w := newWorld(t)
			r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return top, nil }}
			claim := runs.Claim{Root: crashRoot, Epoch: 1, Journal: w}
			if park, err := r.Drive(t.Context(), claim); err != nil || park.Done {
				t.Fatal(park, err)
			}
			w.inbox = append(w.inbox, &teamv1.Inbound{N: 1, Scope: scope, Kind: &teamv1.Inbound_Commanded{Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_CANCEL}}})
			if park, err := r.Drive(t.Context(), claim); err != nil || !park.Done {
				t.Fatal(park, err, w.events)
			}
			if bad := unended(w.events); len(bad) > 0 {
				t.Error(bad)
			}
			if end := w.events[len(w.events)-1].GetEnded(); end.GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED {
				t.Error(end)
			}
		})
	}
}

// TestC_28_CancelOfAQuestionWhileASiblingRuns cancels it while another step works.
func TestC_28_CancelOfAQuestionWhileASiblingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		reg := registry{"slow": &agent.Func{ID: "slow", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
			time.Sleep(10 * time.Second)
			w.mu.Lock()
			w.inbox = append(w.inbox, &teamv1.Inbound{N: 1, Scope: "1", Kind: &teamv1.Inbound_Commanded{Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_CANCEL}}})
			w.mu.Unlock()
			w.wake <- struct{}{}
			time.Sleep(10 * time.Second)
			return agent.NewMessage("slow"), nil
		}}}
		top := newTeamWith(t, team.Config{ID: "root", ReportErrors: true, Registry: reg, Members: members("slow"), Scheduler: next(func(s *team.State) (team.Decision, error) {
			if len(s.Steps) == 0 {
				return team.Decision{Steps: []*teamv1.Step{human("well?"), to("slow")}}, nil
			}
			return team.Decision{Reply: agent.NewMessage("done")}, nil
		})})
		w = newWorld(t)
		start := time.Now()
		r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return top, nil }}
		if park, err := r.Drive(t.Context(), runs.Claim{Root: crashRoot, Epoch: 1, Journal: w}); err != nil || !park.Done {
			t.Fatal(park, err)
		}
		for _, ev := range w.events {
			if ev.GetScope() == "1" && ev.GetEnded() != nil {
				if ev.GetEnded().GetOutcome() != teamv1.Outcome_OUTCOME_CANCELED || ev.GetTime().AsTime().Sub(start) > 11*time.Second {
					t.Error(ev, ev.GetTime().AsTime().Sub(start))
				}
			}
		}
	})
}

// TestAnswer_TooLate gives two answers to one question: the first one counts.
func TestAnswer_TooLate(t *testing.T) {
	tm := newTeamWith(t, team.Config{ID: "root", Scheduler: batches([]*teamv1.Step{human("well?"), to("b")}), Members: members("b"), Registry: registry{"b": skilled("b")}})
	r := newRecord()
	r.process(t.Context(), tm, func(ev *teamv1.Event) bool {
		if ev.GetAsked() != nil {
			r.run.Deliver(answerTo(ev, "yes"))
			r.run.Deliver(answerTo(ev, "no"))
		}
		return true
	})
	if got := agent.Text(r.reply.GetMessage()); got != "yes" {
		t.Error(got, r.err)
	}
	late := 0
	for _, ev := range r.events {
		if ev.GetReceived().GetTooLate() {
			late++
		}
	}
	if late != 1 {
		t.Error(late)
	}
}

// TestDecision_IsNotMadeAnew crashes after the last decision of an impure scheduler.
func TestDecision_IsNotMadeAnew(t *testing.T) {
	calls := 0
	tm := newTeamWith(t, team.Config{ID: "root", Scheduler: next(func(*team.State) (team.Decision, error) {
		calls++
		return team.Decision{Reply: agent.NewMessage(fmt.Sprint("reply ", calls))}, nil
	})})
	r := newRecord()
	r.process(t.Context(), tm, func(ev *teamv1.Event) bool { return ev.GetDecided() == nil })
	r.process(t.Context(), tm, nil)
	if calls != 1 || agent.Text(r.reply.GetMessage()) != "reply 1" {
		t.Error(calls, r.reply, r.events)
	}
}

// TestDecision_ToAskIsNotMadeAnew crashes between the decision to ask and the question.
func TestDecision_ToAskIsNotMadeAnew(t *testing.T) {
	calls := 0
	tm := newTeamWith(t, team.Config{ID: "root", Scheduler: next(func(s *team.State) (team.Decision, error) {
		calls++
		return team.Decision{Ask: agent.NewMessage(fmt.Sprint("ask ", calls))}, nil
	})})
	r := newRecord()
	r.process(t.Context(), tm, func(ev *teamv1.Event) bool { return ev.GetDecided() == nil })
	r.process(t.Context(), tm, nil)
	if calls != 1 || len(r.events) != 2 || agent.Text(r.events[1].GetAsked().GetMessage()) != "ask 1" {
		t.Error(calls, r.events)
	}
}

// TestR_000_25_I1_PanickingScheduler has a scheduler panic while a step runs.
func TestR_000_25_I1_PanickingScheduler(t *testing.T) {
	hang := &agent.Func{ID: "a", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	tm := newTeamWith(t, team.Config{ID: "root", Members: members("a", "b"), Registry: registry{"a": hang, "b": skilled("b")}, Scheduler: next(func(s *team.State) (team.Decision, error) {
		if len(s.Steps) == 0 {
			a, b := to("a"), to("b")
			a.Async, b.Async = true, true
			return team.Decision{Steps: []*teamv1.Step{a, b}}, nil
		}
		if !s.Steps[1].Done {
			return team.Decision{}, nil
		}
		panic("oops")
	})})
	r := newRecord()
	func() {
		defer func() {
			if p := recover(); p != nil {
				t.Error("panicked:", p)
			}
		}()
		r.process(t.Context(), tm, nil)
	}()
	wantReason(t, r.err, agent.ReasonSchedulerError)
	if bad := unended(r.events); len(bad) > 0 {
		t.Error(bad)
	}
}

type busyTool struct{}

func (busyTool) Spec() agent.ToolSpec { return agent.ToolSpec{Name: "clock"} }
func (busyTool) Call(context.Context, json.RawMessage, string) (*teamv1.ToolResult, error) {
	return nil, &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Message: "busy"}
}

// TestTool_FailsUnderItsDelegation has a tool fail under a policy of one attempt: the model is
// told, the run goes on.
func TestTool_FailsUnderItsDelegation(t *testing.T) {
	m, err := leader.NewAgent(leader.AgentConfig{ID: "modeled", Model: &fakeModel{newWorld(t)}, Tools: []agent.Tool{busyTool{}}})
	if err != nil {
		t.Fatal(err)
	}
	tm := newTeamWith(t, team.Config{ID: "root", Registry: registry{"modeled": m}, Scheduler: inOrder("modeled"), Members: []team.Member{{Agent: "modeled", Retry: &teamv1.Retry{Attempts: proto.Int32(1)}}}})
	if got, err := ask(t, tm, "hi"); err != nil {
		t.Error(got, err)
	}
}

// TestR_000_28_C_07_StepsEndEveryRun has a scheduler that gets failures itself and never stops.
func TestR_000_28_C_07_StepsEndEveryRun(t *testing.T) {
	tm := newTeamWith(t, team.Config{ID: "root", ReportErrors: true, Members: members("a"), Registry: registry{"a": skilled("a")}, Limits: &teamv1.Limits{MaxSteps: proto.Int32(3)}, Scheduler: next(func(s *team.State) (team.Decision, error) {
		if len(s.Steps) > 50 {
			return team.Decision{Reply: agent.NewMessage("endless")}, nil
		}
		st := to("a")
		st.Input = &teamv1.Input{Message: agent.UserMessage("", fmt.Sprint(len(s.Steps)))}
		return team.Decision{Steps: []*teamv1.Step{st}}, nil
	})})
	_, err := ask(t, tm, "hi")
	wantReason(t, err, agent.ReasonMaxIterations)
}

// TestQuestion_EachHasAnID has a scheduler ask twice in a row.
func TestQuestion_EachHasAnID(t *testing.T) {
	tm := newTeamWith(t, team.Config{ID: "root", Scheduler: next(func(s *team.State) (team.Decision, error) {
		return team.Decision{Ask: agent.NewMessage("again?")}, nil
	})})
	r := newRecord()
	r.process(t.Context(), tm, nil)
	q := r.events[len(r.events)-1]
	a := answerTo(q, "yes")
	r.events = append(r.events, &teamv1.Event{Seq: int64(len(r.events) + 2), Time: timestamppb.Now(), Kind: &teamv1.Event_Answered{Answered: a.GetAnswered()}})
	r.process(t.Context(), tm, nil)
	if again := r.events[len(r.events)-1].GetAsked(); again == nil || again.GetQuestion() == q.GetAsked().GetQuestion() {
		t.Error(again)
	}
}

// slowJournal has commits that last as long as those who wait for them do.
type slowJournal struct {
	*world
	slow int // which commit, from 1
}

func (j *slowJournal) Commit(ctx context.Context) error {
	if j.slow--; j.slow == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	return j.world.Commit(ctx)
}

// TestCommit_EndsWithItsWork has the time of a member run out while it waits for a commit: that
// is no fault of the journal.
func TestCommit_EndsWithItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := registry{"a": skilled("a")}
		reg["inner"] = newTeamWith(t, team.Config{ID: "inner", Scheduler: inOrder("a"), Registry: reg, Members: members("a")})
		top := newTeamWith(t, team.Config{ID: "root", ReportErrors: true, Registry: reg, Members: []team.Member{{Agent: "inner", Timeout: time.Second}}, Scheduler: next(func(s *team.State) (team.Decision, error) {
			if len(s.Steps) == 0 {
				return delegateTo("inner"), nil
			}
			return team.Decision{Reply: agent.NewMessage("done")}, nil
		})})
		w := newWorld(t)
		r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return top, nil }}
		park, err := r.Drive(t.Context(), runs.Claim{Root: crashRoot, Epoch: 1, Journal: &slowJournal{w, 2}})
		if err != nil || !park.Done || w.events[len(w.events)-1].GetEnded().GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED {
			t.Fatal(park, err, w.events)
		}
	})
}

// parker is an agent that parks at the very moment it is canceled.
type parker struct {
	worker
	parks func(context.Context)
}

func (k *parker) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		if ctx.Err() != nil {
			yield(&teamv1.Event{Scope: "1", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_CANCELED}}}, nil)
			yield(nil, context.Cause(ctx))
			return
		}
		yield(&teamv1.Event{Scope: "1", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}}, nil)
		yield(&teamv1.Event{Scope: "1", Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: "q"}}}, nil)
		k.parks(ctx)
	}
}

// TestI1_CancelAsTheRunParks cancels a run that parks at the same moment.
func TestI1_CancelAsTheRunParks(t *testing.T) {
	w := newWorld(t)
	top := &parker{worker{w: w, name: "root"}, func(ctx context.Context) {
		w.mu.Lock()
		w.inbox = append(w.inbox, &teamv1.Inbound{N: 1, Kind: &teamv1.Inbound_Commanded{Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_CANCEL}}})
		w.mu.Unlock()
		w.wake <- struct{}{}
		<-ctx.Done()
	}}
	r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return top, nil }}
	if park, err := r.Drive(t.Context(), runs.Claim{Root: crashRoot, Epoch: 1, Journal: w}); err != nil || !park.Done {
		t.Fatal(park, err)
	}
	if bad := unended(w.events); len(bad) > 0 {
		t.Error(bad)
	}
}

// brokenJournal is a journal whose n-th commit fails.
type brokenJournal struct {
	*world
	n int
}

var errDisk = errors.New("disk full")

func (j *brokenJournal) Commit(ctx context.Context) error {
	if j.n--; j.n == 0 {
		return errDisk
	}
	return j.world.Commit(ctx)
}

// TestCommit_FailsAndNothingGoesOn has every commit of a run fail: the process lets
// go of the run, and does not begin the step once more.
func TestCommit_FailsAndNothingGoesOn(t *testing.T) {
	for n := 1; n < 20; n++ {
		w := newWorld(t)
		top := oneByOne(t, w)
		r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return top, nil }}
		park, err := r.Drive(t.Context(), runs.Claim{Root: crashRoot, Epoch: 1, Journal: &brokenJournal{w, n}})
		if err == nil {
			if !park.Done || n < 6 {
				t.Error(n, park)
			}
			return
		}
		if !errors.Is(err, errDisk) {
			t.Error(n, park, err)
		}
	}
}

// fullJournal takes no more than some events, and ends.
type fullJournal struct {
	*world
	max int
}

func (j *fullJournal) Append(ctx context.Context, events ...*teamv1.Event) error {
	for _, ev := range events {
		if len(j.events) >= j.max && ev.GetEnded() == nil {
			return runs.ErrLimit
		}
	}
	return j.world.Append(ctx, events...)
}

// TestI1_FullJournal fills the journal at every event: what began gets its end, and
// nothing begins off the record.
func TestI1_FullJournal(t *testing.T) {
	for limit := 3; limit < 60; limit++ {
		w := newWorld(t)
		top := crashTeam(t, w)
		r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return top, nil }}
		park, err := r.Drive(t.Context(), runs.Claim{Root: crashRoot, Epoch: 1, Journal: &fullJournal{w, limit}})
		if err != nil {
			t.Fatal(limit, err)
		}
		if !park.Done {
			return
		}
		for _, f := range w.faults {
			t.Error(limit, f)
		}
		if bad := unended(w.events); len(bad) > 0 {
			t.Fatal(limit, bad)
		}
	}
}

// TestQuestion_LeavesWhatRuns has a scheduler ask while a step runs: the step is not begun
// a second time.
func TestQuestion_LeavesWhatRuns(t *testing.T) {
	calls := 0
	a := &agent.Func{ID: "a", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		calls++
		time.Sleep(20 * time.Millisecond)
		return agent.NewMessage("a"), ctx.Err()
	}}
	tm := newTeamWith(t, team.Config{ID: "root", Members: members("a", "b"), Registry: registry{"a": a, "b": skilled("b")}, Scheduler: next(func(s *team.State) (team.Decision, error) {
		switch {
		case len(s.Steps) == 0:
			a, b := to("a"), to("b")
			a.Async, b.Async = true, true
			return team.Decision{Steps: []*teamv1.Step{a, b}}, nil
		case !s.Steps[1].Done:
			return team.Decision{}, nil
		case s.Messages[0].GetMessageId() == "a-yes" && !s.Steps[0].Done:
			return team.Decision{}, nil
		case s.Messages[0].GetMessageId() == "a-yes":
			return team.Decision{Reply: agent.NewMessage("fine")}, nil
		}
		return team.Decision{Ask: agent.NewMessage("well?")}, nil
	})})
	r := newRecord()
	r.process(t.Context(), tm, nil)
	q := r.events[slices.IndexFunc(r.events, func(ev *teamv1.Event) bool { return ev.GetAsked() != nil })]
	r.events = append(r.events, &teamv1.Event{Seq: int64(len(r.events) + 2), Time: timestamppb.Now(), Kind: &teamv1.Event_Answered{Answered: answerTo(q, "yes").GetAnswered()}})
	r.process(t.Context(), tm, nil)
	if bad := unended(r.events); len(bad) > 0 || r.reply == nil || calls != 1 {
		t.Error(bad, r.reply, r.err, calls)
	}
}
