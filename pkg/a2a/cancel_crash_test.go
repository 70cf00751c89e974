package a2a_test

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/fakeagent"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// dying is a journal whose process dies at an event that is so.
type dying struct {
	a2a.Journal
	at   func(*teamv1.Event) bool
	dead atomic.Bool
}

func (j *dying) Append(ctx context.Context, events ...*teamv1.Event) error {
	if slices.ContainsFunc(events, j.at) {
		j.dead.Store(true)
	}
	if j.dead.Load() {
		return errDied
	}
	return j.Journal.Append(ctx, events...)
}

func (j *dying) Commit(ctx context.Context) error {
	if j.dead.Load() {
		return errDied
	}
	return j.Journal.Commit(ctx)
}

// single is a run that the test itself drives.
type single struct {
	*store.Memory
	key  a2a.Key
	held a2a.Claim
}

func newSingle(t *testing.T, agentID string) *single {
	t.Helper()
	s := &single{Memory: store.NewMemory(store.MemoryConfig{}), key: a2a.Key{Owner: "acme/ann", ID: uuid.NewString()}}
	acc := &teamv1.Accepted{TaskId: s.key.ID, Agent: agentID, Owner: s.key.Owner, Message: agent.UserMessage("m", "hi")}
	if _, _, err := s.Create(t.Context(), a2a.New{Owner: s.key.Owner, Accepted: acc, MessageID: "m"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// take claims the run for the next process.
func (s *single) take(t *testing.T) a2a.Claim {
	t.Helper()
	claims, _, err := s.Claim(t.Context(), "r", 1)
	if err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	s.held = claims[0]
	return s.held
}

// die gives the run up, as the end of a lease does.
func (s *single) die(t *testing.T) {
	t.Helper()
	if err := s.Release(t.Context(), s.held, time.Time{}); err != nil {
		t.Fatal(err)
	}
}

func (s *single) task(t *testing.T) *a2av1.Task {
	t.Helper()
	task, _, err := s.Task(t.Context(), s.key)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func (s *single) cancel(t *testing.T) {
	t.Helper()
	in := &teamv1.Inbound{Key: "cancel/", Kind: &teamv1.Inbound_Commanded{Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_CANCEL}}}
	if _, _, err := s.Put(t.Context(), s.key, in, nil); err != nil {
		t.Fatal(err)
	}
}

// until waits until so many events are of a kind.
func (s *single) until(t *testing.T, n int, is func(*teamv1.Event) bool) {
	t.Helper()
	wake, stop := s.Watch(s.key.ID)
	defer stop()
	for {
		records, err := s.Events(t.Context(), s.key, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, rec := range records {
			if is(rec.Event) {
				seen++
			}
		}
		if seen >= n {
			return
		}
		<-wake
	}
}

// S-24, S-43: a task that was canceled or stopped before anybody drove it calls nobody,
// also no agent that does not look at its context.
func TestS_24_S_43_EndBeforeTheStart(t *testing.T) {
	calls := 0
	f := talker{id: "leaf", talk: func(context.Context, func(*teamv1.Event) bool) { calls++ }}
	r := start(t, f)
	r.newTeam(t, "team", through("leaf"), "leaf")
	for i := range 6 {
		s := newSingle(t, []string{"leaf", "team"}[i%2])
		if i < 2 {
			s.cancel(t)
		} else {
			s.command(t, "stop", &teamv1.Commanded{Command: stopIt, Force: i < 4})
		}
		if park, err := (&drive.Runner{Agent: r.agents.Get}).Drive(t.Context(), s.take(t)); err != nil || !park.Done {
			t.Fatal(park, err)
		}
		wantState(t, s.task(t), canceled)
	}
	if calls > 0 {
		t.Errorf("%d calls", calls)
	}
}

// announced is an agent whose tasks of peers are told of once somebody allows it.
type announced struct {
	agent.Agent
	agent.Reaper
	allow func()
}

func (a announced) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		for ev, err := range a.Agent.Process(ctx, req) {
			if ev.GetBound() != nil {
				a.allow()
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// S-24: the process died before the peers' tasks were on record. By the Agent
// service they end by the key on record; over A2A it is told that there may be one.
func TestS_24_CrashBeforeTheTaskOfAPeerIsKnown(t *testing.T) {
	for id, want := range map[string][]string{
		"team": {"1 team/far: sent its message; the task is not known, unconfirmed", "2 team/near: sent its message; the task is not known, confirmed"},
		"far":  {" far: sent its message; the task is not known, unconfirmed"},
		"near": {" near: sent its message; the task is not known, confirmed"},
	} {
		far, overFar := overA2A(t, "far", held(), time.Minute)
		near, overNear := overService(t, "near", held(), time.Minute)
		called := func() {
			if id != "near" {
				far.Await(t, "SendStreamingMessage", 1)
			}
			if id != "far" {
				near.Await(t, "ProcessStream", 1)
			}
		}
		r := start(t, announced{overFar, overFar.(agent.Reaper), called}, announced{overNear, overNear.(agent.Reaper), called})
		r.newTeam(t, "team", together("far", "near"), "far", "near")
		s := newSingle(t, id)
		c := s.take(t)
		c.Journal = &dying{Journal: c.Journal, at: func(ev *teamv1.Event) bool { return ev.GetBound() != nil }}
		if _, err := (&drive.Runner{Agent: r.agents.Get}).Drive(t.Context(), c); err == nil {
			t.Fatal("it did not die")
		}
		s.die(t)
		s.cancel(t)
		sent := func() int { return len(far.Requests("SendStreamingMessage")) + len(near.Requests("ProcessStream")) }
		before := sent()
		if park, err := (&drive.Runner{Agent: r.agents.Get}).Drive(t.Context(), s.take(t)); err != nil || !park.Done {
			t.Fatal(park, err)
		}
		wantReached(t, wantState(t, s.task(t), canceled), want...)
		if sent() != before {
			t.Errorf("%s: %d messages after the crash", id, sent()-before)
		}
	}
}

// S-24: the agent of the run is gone when the cancel comes: the peer's task is
// told as not confirmed.
func TestS_24_CancelWithoutTheAgent(t *testing.T) {
	_, overFar := overA2A(t, "far", fakeagent.Config{Default: fakeagent.Turn{Ask: "which?"}}, time.Minute)
	r := start(t, overFar)
	r.newTeam(t, "team", through("far"), "far")
	s := newSingle(t, "team")
	if park, err := (&drive.Runner{Agent: r.agents.Get}).Drive(t.Context(), s.take(t)); err != nil || park.Done {
		t.Fatal(park, err)
	}
	s.die(t)
	s.cancel(t)
	gone := func(id string) (agent.Agent, error) {
		return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no agent %q", id)
	}
	if park, err := (&drive.Runner{Agent: gone}).Drive(t.Context(), s.take(t)); err != nil || !park.Done {
		t.Fatal(park, err)
	}
	wantReached(t, wantState(t, s.task(t), canceled), "1 team/far: waiting for an answer, unconfirmed")
}

// S-24: the process dies at every event from the cancel on, up to the end; the next
// one begins with what is on record, sends nothing, and ends the peers' tasks.
func TestS_24_CrashAfterTheCancel(t *testing.T) {
	crashes := int64(0)
	for ended := false; !ended; crashes++ {
		ended = crashAfterCancel(t, crashes)
	}
	if crashes < 4 { // the cancel, three steps, the end
		t.Errorf("%d crashes", crashes)
	}
}

// crashAfterCancel lets a run die so many events after its cancel, and reports
// whether it ended before.
func crashAfterCancel(t *testing.T, events int64) (ended bool) {
	t.Helper()
	far, overFar := overA2A(t, "far", held(), time.Minute)
	near, overNear := overService(t, "near", held(), time.Minute)
	r := start(t, overFar, overNear)
	r.newTeam(t, "inner", together("far", "near"), "far", "near")
	r.newTeam(t, "team", through("inner"), "inner")
	s := newSingle(t, "team")
	runner := &drive.Runner{Agent: r.agents.Get, Replica: "one"}
	c := s.take(t)
	var seen atomic.Int64 // events from the cancel on
	j := &dying{Journal: c.Journal, at: func(ev *teamv1.Event) bool {
		return (ev.GetCommanded() != nil || seen.Load() > 0) && seen.Add(1) > events
	}}
	done := make(chan error, 1)
	go func() {
		_, err := runner.Drive(t.Context(), a2a.Claim{Root: c.Root, Epoch: c.Epoch, Journal: j})
		done <- err
	}()
	s.until(t, 2, func(ev *teamv1.Event) bool { return ev.GetBound() != nil })
	s.cancel(t)
	if err := <-done; err == nil {
		return true
	}
	s.die(t)
	sent := func() int { return len(far.Requests("SendStreamingMessage")) + len(near.Requests("ProcessStream")) }
	before := sent()
	if park, err := (&drive.Runner{Agent: r.agents.Get, Replica: "two"}).Drive(t.Context(), s.take(t)); err != nil || !park.Done {
		t.Fatal(events, park, err)
	}
	wantReached(t, wantState(t, s.task(t), canceled),
		"1 team/inner: gave work to far, near",
		"1.1 team/inner/far: remote task TASK_STATE_WORKING, confirmed",
		"1.2 team/inner/near: remote task TASK_STATE_WORKING, confirmed",
	)
	if sent() != before {
		t.Errorf("%d messages after the crash", sent()-before)
	}
	if len(far.Requests("CancelTask")) == 0 || len(near.Requests("Cancel")) == 0 {
		t.Error("a peer got no cancel")
	}
	return false
}
