//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

const (
	workers = 8
	pace    = 80 * time.Millisecond // between two operations of a worker
)

// operation is one kind of work of the load.
type operation struct {
	name string
	do   func(ctx context.Context, c rig.PushClient, id string) error
}

// load is a steady load of all kinds of operations.
type load struct {
	t      testing.TB
	target rig.Target
	hook   string
	all    []operation
	done   []atomic.Int64 // by operation
	next   atomic.Int64
	prefix string

	mu   sync.Mutex
	errs []error // guarded by mu
}

var loads atomic.Int64

func newLoad(t testing.TB, target rig.Target, hook string) *load {
	l := &load{t: t, target: target, hook: hook, prefix: fmt.Sprint(loads.Add(1))}
	l.all = []operation{
		{"send", l.send}, {"stream", l.stream}, {"question", l.question}, {"cancel", l.cancel}, {"fail", l.fail},
		{"webhook", l.webhook}, {"disconnect", l.disconnect}, {"cut", l.cut},
	}
	l.done = make([]atomic.Int64, len(l.all))
	return l
}

// run keeps the load up for some time, and returns when all operations have ended.
func (l *load) run(length time.Duration) {
	end := time.Now().Add(length)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { l.work(end) })
	}
	wg.Wait()
}

// work does one operation after the other over all bindings, at a steady pace.
func (l *load) work(end time.Time) {
	g, err := rig.NewGRPC(l.target)
	if err != nil {
		l.failed(err)
		return
	}
	defer func() { _ = g.Close() }() // nothing is under way
	clients := []rig.PushClient{g, rig.NewREST(l.target), rig.NewJSONRPC(l.target)}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for time.Now().Before(end) {
		n := l.next.Add(1)
		which := int(n) % len(l.all)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := l.all[which].do(ctx, clients[int(n)/len(l.all)%len(clients)], fmt.Sprintf("%s-%d", l.prefix, n))
		cancel()
		if err != nil {
			l.failed(fmt.Errorf("%s %d: %w", l.all[which].name, n, err))
		} else {
			l.done[which].Add(1)
		}
		<-tick.C
	}
}

func (l *load) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errs) < 10 {
		l.errs = append(l.errs, err)
	}
}

// counts returns how many operations of each kind were done.
func (l *load) counts() string {
	var all []string
	for i, o := range l.all {
		all = append(all, fmt.Sprintf("%d %s", l.done[i].Load(), o.name))
	}
	return strings.Join(all, ", ")
}

// check fails the test if an operation failed or was never done.
func (l *load) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range l.errs {
		l.t.Error(err)
	}
	for i, o := range l.all {
		if l.done[i].Load() == 0 {
			l.t.Errorf("no %s was done", o.name)
		}
	}
}

// wantState returns an error unless a task has a state.
func wantState(task *a2av1.Task, want a2av1.TaskState) error {
	if got := task.GetStatus().GetState(); got != want {
		return fmt.Errorf("the task is %v, want %v: %s", got, want, agent.Text(task.GetStatus().GetMessage()))
	}
	return nil
}

func (l *load) send(ctx context.Context, c rig.PushClient, id string) error {
	resp, err := c.Send(ctx, rig.Text("relay", id, "hello "+id))
	if err != nil {
		return err
	}
	return wantState(resp.GetTask(), a2av1.TaskState_TASK_STATE_COMPLETED)
}

func (l *load) stream(ctx context.Context, c rig.PushClient, id string) error {
	all, err := rig.Collect(c.Stream(ctx, rig.Text("relay", id, "hello "+id)))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(u *a2av1.StreamResponse) bool {
		return u.GetStatusUpdate().GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED
	}) {
		return fmt.Errorf("the task has not completed after %d updates", len(all))
	}
	return nil
}

func (l *load) question(ctx context.Context, c rig.PushClient, id string) error {
	resp, err := c.Send(ctx, rig.Text("desk", id, "Rain"))
	if err == nil {
		err = wantState(resp.GetTask(), a2av1.TaskState_TASK_STATE_INPUT_REQUIRED)
	}
	if err != nil {
		return err
	}
	answer := rig.Text("desk", id+"-answer", "Rome")
	answer.Message.TaskId = resp.GetTask().GetId()
	if resp, err = c.Send(ctx, answer); err != nil {
		return err
	}
	return wantState(resp.GetTask(), a2av1.TaskState_TASK_STATE_COMPLETED)
}

// begin sends a message and does not wait for the end of its task.
func begin(ctx context.Context, c rig.Client, tenant, id string) (*a2av1.Task, error) {
	req := rig.Text(tenant, id, "hello")
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	resp, err := c.Send(ctx, req)
	return resp.GetTask(), err
}

func (l *load) cancel(ctx context.Context, c rig.PushClient, id string) error {
	task, err := begin(ctx, c, "bureau", id)
	if err != nil {
		return err
	}
	if task, err = c.Cancel(ctx, &a2av1.CancelTaskRequest{Tenant: "bureau", Id: task.GetId()}); err != nil {
		return err
	}
	return wantState(task, a2av1.TaskState_TASK_STATE_CANCELED)
}

func (l *load) fail(ctx context.Context, c rig.PushClient, id string) error {
	resp, err := c.Send(ctx, rig.Text("press", id, "hello"))
	if err != nil {
		return err
	}
	return wantState(resp.GetTask(), a2av1.TaskState_TASK_STATE_FAILED)
}

func (l *load) webhook(ctx context.Context, c rig.PushClient, id string) error {
	task, err := begin(ctx, c, "tardy", id)
	if err == nil {
		_, err = c.CreatePush(ctx, &a2av1.TaskPushNotificationConfig{Tenant: "tardy", TaskId: task.GetId(), Url: l.hook})
	}
	if err != nil {
		return err
	}
	_, err = rig.Collect(c.Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Tenant: "tardy", Id: task.GetId()}, 0))
	if f := rig.Fault(err); f != nil && f.Code == "FailedPrecondition" { // it has ended
		return nil
	}
	return err
}

// disconnect leaves a stream after its first update.
func (l *load) disconnect(ctx context.Context, c rig.PushClient, id string) error {
	next, stop := iter.Pull2(c.Stream(ctx, rig.Text("tardy", id, "hello")))
	defer stop()
	_, err, ok := next()
	if !ok {
		return errors.New("the stream is empty")
	}
	return err
}

// cut closes connections in the middle of a request, and in the middle of a call over gRPC.
func (l *load) cut(ctx context.Context, _ rig.PushClient, id string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(l.target.HTTP, "http://"))
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte("POST /relay/rpc HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"jsonrpc\""))
	if err = errors.Join(err, conn.Close()); err != nil {
		return err
	}
	g, err := rig.NewGRPC(l.target)
	if err != nil {
		return err
	}
	for _, err := range g.Stream(ctx, rig.Text("tardy", id, "hello")) {
		return errors.Join(err, g.Close())
	}
	return errors.Join(errors.New("the stream is empty"), g.Close())
}
