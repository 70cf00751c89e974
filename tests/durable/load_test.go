//go:build linux

package durable

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// drivers is how many clients keep a task under way each.
const drivers = 40

// load is a number of clients that send tasks to whichever server runs, follow
// them to their end, and write down what they were told. A client that loses
// the server sends again, or resumes behind what it has seen, as soon as there
// is one again.
type load struct {
	history *history
	front   *front
	seed    uint64
	last    atomic.Int64 // number of the last job
	enough  chan struct{}
	work    sync.WaitGroup
	cancel  context.CancelFunc

	mu  sync.Mutex
	err error // the first; guarded by mu
}

// job is one task to be done.
type job struct {
	owner   int // of principals
	binding int
	message string
	agent   string
	text    string
	mode    mode
}

// mode is how a job is sent.
type mode int

const (
	atOnce    mode = iota // SendMessage returns immediately
	streaming             // SendStreamingMessage
	blocking              // SendMessage waits for the end
)

// startLoad starts the clients.
func startLoad(ctx context.Context, h *history, f *front, seed uint64) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{history: h, front: f, seed: seed, enough: make(chan struct{}), cancel: cancel}
	for range drivers {
		l.work.Go(func() { l.drive(ctx) })
	}
	return l
}

// stall is how long a server may tell nobody anything.
const stall = patience / 2

// finish lets the clients end what they have begun, and waits for them.
func (l *load) finish() error {
	close(l.enough)
	limit := time.AfterFunc(2*patience, func() { l.fail(fmt.Errorf("tasks are not done in %v", 2*patience)) })
	defer limit.Stop()
	done := make(chan struct{})
	go func() { l.work.Wait(); close(done) }()
	for {
		acks, open, changed := l.history.standing()
		select {
		case <-done:
			return l.failure()
		case <-changed:
		case <-time.After(stall):
			l.fail(fmt.Errorf("after %d acknowledgements nothing more comes of %d tasks", acks, open))
			<-done
			return l.failure()
		}
	}
}

// reach waits for a number of acknowledgements since the server was started, with
// so many tasks under way, unless the server goes before.
func (l *load) reach(acks, atLeast int, gone <-chan struct{}) (open int, err error) {
	for {
		n, open, changed := l.history.standing()
		if err := l.failure(); err != nil || n >= acks && open >= atLeast {
			return open, err
		}
		select {
		case <-changed:
		case <-gone:
			return open, nil
		case <-time.After(stall):
			return open, fmt.Errorf("after %d acknowledgements nothing more comes of %d tasks", n, open)
		}
	}
}

// abandon ends the clients.
func (l *load) abandon() {
	l.cancel()
	l.work.Wait()
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	l.cancel()
}

func (l *load) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// drive does one job after the other.
func (l *load) drive(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-l.enough:
			return
		default:
		}
		j := l.job()
		if err := l.do(ctx, j); err != nil && ctx.Err() == nil {
			l.fail(fmt.Errorf("%s to %s: %w", j.message, j.agent, err))
		}
	}
}

// job makes the next job; the seed says which.
func (l *load) job() job {
	n := l.last.Add(1)
	h := fnv.New64a()
	fmt.Fprintf(h, "job %d", n)
	r := rand.New(rand.NewPCG(l.seed, h.Sum64()))
	j := job{owner: r.IntN(len(principals)), binding: r.IntN(bindings), message: fmt.Sprintf("m%d", n), text: fmt.Sprintf("T%d", n)}
	j.agent = []string{"flow", "flow", "flow", "desk", "desk", "company", "consent", "consent", "led", "relay"}[r.IntN(10)]
	j.mode = []mode{atOnce, atOnce, atOnce, streaming, streaming, blocking}[r.IntN(6)]
	if j.agent == "consent" && j.mode == blocking {
		j.mode = atOnce
	}
	return j
}

// do sends a job and follows its task to the end.
func (l *load) do(ctx context.Context, j job) error {
	l.history.add(entry{Op: opSend, Owner: j.owner, Message: j.message, Agent: j.agent, Text: j.text})
	w := &watch{load: l, job: j}
	if j.mode == streaming {
		if err := w.stream(ctx); err != nil {
			return err
		}
	} else if err := w.send(ctx); err != nil {
		return err
	}
	for !w.state.ended() {
		next := w.follow
		if w.state == a2av1Input {
			next = w.answer
		}
		if err := next(ctx); err != nil {
			return err
		}
	}
	return w.end(ctx)
}

// state is what a client knows of a task's state.
type state a2av1.TaskState

const a2av1Input = state(a2av1.TaskState_TASK_STATE_INPUT_REQUIRED)

func (s state) ended() bool {
	switch a2av1.TaskState(s) {
	case a2av1.TaskState_TASK_STATE_COMPLETED, a2av1.TaskState_TASK_STATE_FAILED,
		a2av1.TaskState_TASK_STATE_CANCELED, a2av1.TaskState_TASK_STATE_REJECTED:
		return true
	}
	return false
}

// watch is one job under way.
type watch struct {
	*load
	job      job
	task     string // empty until it is acknowledged
	state    state
	cursor   int64 // everything up to it was seen
	answered bool  // its question
	streams  int
}

// anywhere calls a server, and the next one where that dies, until it answers.
func (w *watch) anywhere(ctx context.Context, call func(context.Context, rig.Client) error) error {
	var last *endpoint
	for {
		e, err := w.front.await(ctx, last)
		if err != nil {
			return err
		}
		one, stop := context.WithTimeout(ctx, patience)
		err = call(one, e.clients[w.job.owner][w.job.binding])
		stop()
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case dead(err):
			last = e
		case !refused(err):
			return err
		default:
			_ = agent.Sleep(ctx, 20*time.Millisecond) // as it says: try again
		}
	}
}

// dead reports whether an error is what a server leaves that dies: a connection
// that breaks, and nothing that the server itself says.
func dead(err error) bool {
	var e *rig.Error
	if !errors.As(err, &e) {
		return !errors.Is(err, context.DeadlineExceeded)
	}
	return e.Reason == "" && e.HTTP == 0 && (e.Code == "Unavailable" || e.Code == "Canceled" || e.Code == "Internal" || e.Code == "Unknown")
}

// refused reports whether an error is what a server says that can take nothing
// for now.
func refused(err error) bool { return rig.Fault(err).Code == "Unavailable" }

func (w *watch) request() *a2av1.SendMessageRequest {
	req := rig.Text(w.job.agent, w.job.message, w.job.text)
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: w.job.mode == atOnce}
	return req
}

// send sends the message until its task is acknowledged.
func (w *watch) send(ctx context.Context) error {
	return w.anywhere(ctx, func(ctx context.Context, c rig.Client) error {
		resp, err := c.Send(ctx, w.request())
		if err == nil {
			w.began(resp.GetTask().GetId())
			w.state = state(resp.GetTask().GetStatus().GetState())
		}
		return err
	})
}

// began notes the acknowledgement of the task.
func (w *watch) began(id string) {
	if w.task != id {
		w.history.add(entry{Op: opTask, Owner: w.job.owner, Message: w.job.message, Task: id})
	}
	w.task = id
}

// stream sends the message and follows the stream as far as it comes.
func (w *watch) stream(ctx context.Context) error {
	return w.anywhere(ctx, func(ctx context.Context, c rig.Client) error {
		err := w.take(0, c.Stream(ctx, w.request()))
		if w.task != "" && err != nil && (dead(err) || refused(err)) {
			return nil // it is followed from here
		}
		return err
	})
}

// follow subscribes behind what was seen, until the stream ends.
func (w *watch) follow(ctx context.Context) error {
	return w.anywhere(ctx, func(ctx context.Context, c rig.Client) error {
		return w.take(w.cursor, c.Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: w.task}, w.cursor))
	})
}

// take notes what a subscription tells.
func (w *watch) take(open int64, updates iter.Seq2[*a2av1.StreamResponse, error]) error {
	w.streams++
	for u, err := range updates {
		if err != nil {
			return w.over(err)
		}
		if err := w.see(open, u); err != nil {
			return err
		}
		if w.state == a2av1Input {
			return nil // to be answered before anything more comes
		}
	}
	if !w.state.ended() {
		return errors.New("the stream ends while the task works")
	}
	return nil
}

// over forgives that a task cannot be subscribed to because it has ended.
func (w *watch) over(err error) error {
	if rig.Fault(err).Reason == "UNSUPPORTED_OPERATION" {
		w.state = state(a2av1.TaskState_TASK_STATE_COMPLETED) // end sees which
		return nil
	}
	return err
}

// see notes one response.
func (w *watch) see(open int64, u *a2av1.StreamResponse) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(u)
	if err != nil {
		return err
	}
	e := entry{Op: opSee, Owner: w.job.owner, Message: w.job.message, Body: b, Stream: w.streams, Open: open, reader: w}
	switch p := u.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		w.began(p.Task.GetId())
		e.Seq, e.Snap = a2a.RunOf(p.Task.GetMetadata()).GetSeq(), true
		w.state = state(p.Task.GetStatus().GetState())
		if w.answered && w.state == a2av1Input {
			w.state = state(a2av1.TaskState_TASK_STATE_WORKING) // the answer is on its way
		}
	case *a2av1.StreamResponse_StatusUpdate:
		e.Seq = a2a.RunOf(p.StatusUpdate.GetMetadata()).GetSeq()
		w.state = state(p.StatusUpdate.GetStatus().GetState())
	case *a2av1.StreamResponse_ArtifactUpdate:
		e.Seq = a2a.RunOf(p.ArtifactUpdate.GetMetadata()).GetSeq()
	default:
		return fmt.Errorf("the stream tells %v", u)
	}
	e.Task = w.task
	w.cursor = max(w.cursor, e.Seq) // 0: more of the same event follows
	w.history.add(e)
	return nil
}

// answer answers the question that the task asks.
func (w *watch) answer(ctx context.Context) error {
	if w.answered {
		return errors.New("the task asks a second time")
	}
	req := rig.Text(w.job.agent, w.job.message+"-answer", consent)
	req.Message.TaskId = w.task
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	err := w.anywhere(ctx, func(ctx context.Context, c rig.Client) error {
		_, err := c.Send(ctx, req)
		return err
	})
	if err == nil {
		w.answered = true
		w.state = state(a2av1.TaskState_TASK_STATE_WORKING)
		w.history.add(entry{Op: opReply, Owner: w.job.owner, Message: w.job.message, Task: w.task, Text: req.GetMessage().GetMessageId()})
	}
	return err
}

// end notes how the task has ended, and looks whether others can see it.
func (w *watch) end(ctx context.Context) error {
	var t *a2av1.Task
	err := w.anywhere(ctx, func(ctx context.Context, c rig.Client) (err error) {
		t, err = c.Get(ctx, &a2av1.GetTaskRequest{Id: w.task})
		return err
	})
	if err != nil {
		return err
	}
	w.history.add(entry{
		Op: opEnd, Owner: w.job.owner, Message: w.job.message, Task: w.task,
		State: t.GetStatus().GetState().String(), Text: result(t), Seq: a2a.RunOf(t.GetMetadata()).GetSeq(),
	})
	return w.spy(ctx)
}

// spy asks for the task as somebody else.
func (w *watch) spy(ctx context.Context) error {
	other := *w
	other.job.owner = (w.job.owner + 1) % len(principals)
	err := other.anywhere(ctx, func(ctx context.Context, c rig.Client) error {
		_, err := c.Get(ctx, &a2av1.GetTaskRequest{Id: w.task})
		return err
	})
	if rig.Fault(err) == nil || rig.Fault(err).Reason != "TASK_NOT_FOUND" {
		w.history.add(entry{Op: opLeak, Owner: other.job.owner, Task: w.task, Text: fmt.Sprint(err)})
	}
	return nil
}

// result is the text of a task's answer.
func result(t *a2av1.Task) string {
	text := ""
	for _, a := range t.GetArtifacts() {
		if a2a.RunOf(a.GetMetadata()).GetDelegationId() != "" {
			continue // a member's
		}
		text += agent.Text(&a2av1.Message{Parts: a.GetParts()})
	}
	return text
}
