// Package agenttest provides the test suite for implementations of agent.Agent. It checks the
// contract that the comments of agent.Agent state.
package agenttest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Kind describes an implementation of agent.Agent to the suite. Tests that need a field that is
// nil are skipped.
type Kind struct {
	// New returns an agent that answers every message, including Message, with a text that
	// contains Want. It must release its resources with t.Cleanup. Required.
	New func(t *testing.T) agent.Agent
	// Message is the text of the message to the agent. The default is "hello".
	Message string
	// Want is a part of the text of the answer. Required.
	Want string
	// ID is the id that Info must return. If it is empty, any id but "" is accepted.
	ID string
	// Streams says that the agent returned by New yields events before its Reply.
	Streams bool
	// Counted is like New, but also returns a function that returns how many effects the agent
	// has had outside of the process. The number must be Effects after a run that was interrupted
	// at any event and then resumed. The default of Effects is 1.
	Counted func(t *testing.T) (a agent.Agent, effects func() int)
	Effects int
	// Held returns an agent that works until its context ends. The channel started is closed, or
	// receives a value, when the work has begun.
	Held func(t *testing.T) (a agent.Agent, started <-chan struct{})
	// Panicking returns an agent that panics, or a part of which panics, when it processes a
	// message.
	Panicking func(t *testing.T) agent.Agent
	// Down returns an agent that does not work, so that its health check must fail.
	Down func(t *testing.T) agent.Agent
	// CancelTime is the maximum time in which Process must return after a cancellation. The
	// default is 5 seconds.
	CancelTime time.Duration
}

// Run runs the suite for an implementation, as subtests of t.
func Run(t *testing.T, k Kind) {
	t.Helper()
	if k.Message == "" {
		k.Message = "hello"
	}
	if k.Effects == 0 {
		k.Effects = 1
	}
	if k.CancelTime == 0 {
		k.CancelTime = 5 * time.Second
	}
	t.Run("R-000-01 info", k.info)
	t.Run("R-000-01 process", k.process)
	t.Run("R-000-01 health", k.health)
	t.Run("R-000-02 calls at the same time", k.parallel)
	t.Run("streams events before its reply", k.streams)
	t.Run("resumes after a crash at any event", k.resumes)
	t.Run("a reader that leaves at any event", k.breaks)
	t.Run("cancel", k.cancels)
	t.Run("shutdown", k.shutdown)
	t.Run("time runs out", k.timeout)
	t.Run("a context that has ended", k.ended)
	t.Run("panic", k.panics)
	t.Run("down", k.down)
}

// info checks the result of Info.
func (k Kind) info(t *testing.T) {
	info, err := k.New(t).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.GetId() == "" || k.ID != "" && info.GetId() != k.ID {
		t.Errorf("id %q, want %q", info.GetId(), k.ID)
	}
	if len(info.GetCapabilities()) != len(info.GetSkills()) {
		t.Errorf("%d capabilities for %d skills", len(info.GetCapabilities()), len(info.GetSkills()))
	}
	for i, s := range info.GetSkills() {
		if info.GetCapabilities()[i] != s.GetId() {
			t.Errorf("capability %d is %q, its skill %q", i, info.GetCapabilities()[i], s.GetId())
		}
	}
}

// health checks that a working agent is healthy.
func (k Kind) health(t *testing.T) {
	h, err := k.New(t).HealthCheck(t.Context())
	if err != nil || !h.GetHealthy() || !h.GetUsable() {
		t.Errorf("HealthCheck = %v, %v", h, err)
	}
}

// process checks that a message is answered.
func (k Kind) process(t *testing.T) {
	r := newRun(k)
	r.play(t, k.New(t), t.Context(), 0)
	r.check(t, k)
}

// streams checks that there are events before the Reply.
func (k Kind) streams(t *testing.T) {
	if !k.Streams {
		t.Skip("this kind only replies")
	}
	r := newRun(k)
	r.play(t, k.New(t), t.Context(), 0)
	r.check(t, k)
	if len(r.recorded) == 0 {
		t.Error("no event before the reply")
	}
}

// parallel makes 100 concurrent calls of each method of one agent.
func (k Kind) parallel(t *testing.T) {
	a := k.New(t)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if _, err := a.Info(t.Context()); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, err := a.HealthCheck(t.Context()); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			r := newRun(k)
			r.play(t, a, t.Context(), 0)
			r.check(t, k)
		})
	}
	wg.Wait()
}

// resumes interrupts a run after its first event, after its second event and so on, and resumes
// it: once with all events that were yielded, and once with only those that were committed.
func (k Kind) resumes(t *testing.T) {
	if k.Counted == nil {
		t.Skip("the effects of this kind are not counted")
	}
	for _, kept := range []string{"all", "committed"} {
		for n := 1; ; n++ {
			a, effects := k.Counted(t)
			r := newRun(k)
			if r.play(t, a, t.Context(), n); r.reply != nil {
				break // there is no n-th event: all events have been tried
			}
			known := true // an agent that commits nothing may repeat everything
			if kept == "committed" {
				r.recorded = r.recorded[:r.committed]
				known = r.committed > 0
			}
			r.play(t, a, t.Context(), 0)
			r.check(t, k)
			if got := effects(); known && got != k.Effects {
				t.Errorf("crash after event %d, %s kept: %d effects, want %d", n, kept, got, k.Effects)
			}
		}
	}
}

// breaks checks that no goroutine is left if the caller breaks out of the loop at any event.
func (k Kind) breaks(t *testing.T) {
	for n := 1; ; n++ {
		a := k.New(t)
		before := runtime.NumGoroutine()
		r := newRun(k)
		if r.play(t, a, t.Context(), n); r.reply != nil {
			return
		}
		settles(t, before+slack)
	}
}

// cancels checks that Process returns after a cancellation.
func (k Kind) cancels(t *testing.T) {
	_, err := k.interrupt(t, agent.ErrCanceled)
	if err != nil && !errors.Is(err, agent.ErrCanceled) {
		t.Errorf("error %v, want %v or none", err, agent.ErrCanceled)
	}
}

// shutdown checks that Process yields nothing more after a shutdown.
func (k Kind) shutdown(t *testing.T) {
	late, err := k.interrupt(t, agent.ErrShutdown)
	if len(late) > 0 {
		t.Errorf("%d events after the shutdown, the first %v", len(late), late[0])
	}
	if err != nil && !errors.Is(err, agent.ErrShutdown) {
		t.Errorf("error %v, want %v or none", err, agent.ErrShutdown)
	}
}

// timeout checks that Process returns after a timeout.
func (k Kind) timeout(t *testing.T) {
	_, err := k.interrupt(t, agent.ErrTimeout)
	if err != nil && !errors.Is(err, agent.ErrTimeout) && agent.AsError(err).Reason != agent.ReasonTimeout {
		t.Errorf("error %v, want %v or none", err, agent.ErrTimeout)
	}
}

// interrupt ends the context of a running call with this cause. It returns the events that were
// yielded afterwards and the error.
func (k Kind) interrupt(t *testing.T, cause error) (late []*teamv1.Event, err error) {
	t.Helper()
	if k.Held == nil {
		t.Skip("this kind cannot be held")
	}
	a, started := k.Held(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	r := newRun(k)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = r.run(ctx, a, 0)
	}()
	select {
	case <-started:
	case <-done:
		t.Fatalf("ended before its work began: %v", err)
	}
	r.mu.Lock()
	before := len(r.recorded)
	r.mu.Unlock()
	cancel(cause)
	timer := time.NewTimer(k.CancelTime)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		t.Fatalf("did not end %v after %v", k.CancelTime, cause)
	}
	if r.reply != nil {
		t.Errorf("replied after %v", cause)
	}
	late = r.recorded[before:]
	for _, e := range late {
		if e.GetEnded() == nil && !errors.Is(cause, agent.ErrShutdown) && e.GetBound() == nil {
			t.Errorf("after %v: %v", cause, e)
		}
	}
	return late, err
}

// ended checks that Process does not answer if its context has ended before.
func (k Kind) ended(t *testing.T) {
	a := k.New(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(agent.ErrCanceled)
	r := newRun(k)
	if err := r.run(ctx, a, 0); r.reply != nil {
		t.Errorf("replied under a context that had ended: %v, %v", r.reply, err)
	}
}

// panics checks that a panic becomes an error without a stack trace.
func (k Kind) panics(t *testing.T) {
	if k.Panicking == nil {
		t.Skip("nothing of this kind can panic")
	}
	r := newRun(k)
	err := r.run(t.Context(), k.Panicking(t), 0)
	if err == nil || r.reply != nil {
		t.Fatalf("reply %v, error %v; want an error", r.reply, err)
	}
	if e := agent.AsError(err); e.Reason == "" || strings.Contains(e.Message, "goroutine ") {
		t.Errorf("error %+v", e)
	}
}

// down checks that an agent that does not work is not healthy.
func (k Kind) down(t *testing.T) {
	if k.Down == nil {
		t.Skip("this kind is never down")
	}
	h, err := k.Down(t).HealthCheck(t.Context())
	if err == nil && h.GetHealthy() {
		t.Errorf("HealthCheck = %v of an agent that is down", h)
	}
}

// slack is the number of additional goroutines, such as those of open connections, that breaks
// permits.
const slack = 24

// settles waits until at most n goroutines are running, and fails the test after 5 seconds.
func settles(t *testing.T, n int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > n {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines are left, want at most %d", runtime.NumGoroutine(), n)
		}
		runtime.Gosched()
	}
}

// run calls an agent as the driver of a run does, and keeps the journal in memory.
type run struct {
	agent.Run
	req       *teamv1.ProcessRequest
	mu        sync.Mutex
	recorded  []*teamv1.Event // guarded by mu
	committed int             // number of durable events; guarded by mu
	reply     *teamv1.Reply
}

// newRun returns a run that sends k.Message to the agent.
func newRun(k Kind) *run {
	id := uuid.NewString()
	r := &run{req: &teamv1.ProcessRequest{
		AgentId: "subject", Message: agent.UserMessage(uuid.NewString(), k.Message), Key: uuid.NewString(), Scope: "1",
		Path: []string{"root"}, Depth: 1,
	}}
	r.Root = id
	r.Committer = func(ctx context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.committed = len(r.recorded)
		return ctx.Err()
	}
	return r
}

// play calls Process until it ends, or until the event number crash, if that is greater than 0.
// It fails the test if there is an error.
func (r *run) play(t *testing.T, a agent.Agent, ctx context.Context, crash int) { //nolint:revive // the test comes first
	t.Helper()
	if err := r.run(ctx, a, crash); err != nil {
		t.Errorf("error %v", err)
	}
}

// run calls Process with the events recorded so far and records the new ones. If crash is greater
// than 0, it breaks out of the loop after that many events.
func (r *run) run(ctx context.Context, a agent.Agent, crash int) error {
	req := proto.CloneOf(r.req)
	req.Recorded = append(req.Recorded, r.recorded...)
	n := 0
	for e, err := range a.Process(agent.With(ctx, &r.Run), req) {
		if err != nil {
			return err
		}
		if reply := e.GetReply(); reply != nil && e.GetScope() == req.GetScope() {
			r.reply = reply
			continue
		}
		r.append(e)
		if n++; n == crash {
			return nil
		}
	}
	return nil
}

// append records an event.
func (r *run) append(e *teamv1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Seq, e.Time = int64(len(r.recorded)+1), timestamppb.Now()
	r.recorded = append(r.recorded, e)
}

// check checks the Reply and the recorded events.
func (r *run) check(t *testing.T, k Kind) {
	t.Helper()
	text := agent.Text(r.reply.GetMessage())
	if r.reply == nil || !strings.Contains(text, k.Want) {
		t.Errorf("reply %v, want a text with %q", r.reply, k.Want)
	}
	for _, e := range r.recorded {
		if !agent.Within(e.GetScope(), r.req.GetScope()) {
			t.Errorf("event outside its scope: %v", e)
		}
		if e.GetAgent() == "" {
			t.Errorf("event without a path: %v", e)
		}
	}
}
