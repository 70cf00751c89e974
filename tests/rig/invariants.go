package rig

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/server/reduce"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
)

const (
	// Secret is part of every key of a model or remote agent in these tests. No event, task
	// or log line may contain it (I4).
	Secret = "sk-never-to-be-seen" //nolint:gosec // not a real key
	// LocalOwner is the owner of the tasks of a server without keys.
	LocalOwner = "local/local"

	quietTime = 30 * time.Second // timeout for open requests to models
	mostTasks = 100              // tasks that are checked when a test ends
)

// Models is a fake model server that runs call. Quiet waits until no request is open.
type Models interface {
	Quiet(ctx context.Context) error
}

// Invariants checks what must hold for every run, as far as it is visible from outside. I1:
// each step that started, or was refused, has exactly one end. I2: sequence numbers have no
// gaps. I3: a run that has ended has no open work; leaked goroutines are checked after the
// tests of a package. I4: no event, task or log line contains a secret. I5: a task equals
// the projection of its events. I6: a task that has ended does not change. Start checks all
// tasks when the test ends; Check does so earlier.
type Invariants struct {
	Target Target
	// Store is where the server stores its tasks.
	Store runs.Store
	// Owner is the owner of the tasks; the default is LocalOwner.
	Owner string
	// Models are the model servers that the runs call.
	Models []Models

	keyed bool // the server has API keys
}

// Check checks a root task and its descendants. seen are the events that a reader of the
// whole stream received, if there was one.
func (i Invariants) Check(t testing.TB, id string, seen ...*teamv1.Event) {
	t.Helper()
	events, ok := i.events(t, id)
	if !ok {
		return
	}
	i.gapless(t, events, seen)
	pairs(t, events)
	secretless(t, events)
	if !terminal(events) {
		return
	}
	i.quiet(t)
	i.recomputed(t, id, events)
	i.traced(t, id, events)
	i.unchanged(t, id, events)
}

// all checks the newest tasks of some owners.
func (i Invariants) all(t testing.TB, owners []string) {
	t.Helper()
	for _, i.Owner = range owners {
		if account, principal, _ := strings.Cut(i.Owner, "/"); i.keyed {
			i.Target = i.Target.As(account, principal)
		}
		page, err := i.Store.List(context.Background(), i.Owner, runs.Filter{PageSize: mostTasks})
		if errors.Is(err, runs.ErrDataLoss) {
			continue // the test has damaged the journal
		}
		if err != nil {
			t.Errorf("the invariants cannot be checked: %v", err)
			return
		}
		for _, task := range page.Tasks {
			i.Check(t, task.GetId())
		}
	}
}

func (i Invariants) key(id string) runs.Key {
	if i.Owner == "" {
		return runs.Key{Owner: LocalOwner, ID: id}
	}
	return runs.Key{Owner: i.Owner, ID: id}
}

// events returns the journal of a task. ok is false if a test has damaged it.
func (i Invariants) events(t testing.TB, id string) ([]*teamv1.Event, bool) {
	t.Helper()
	records, err := i.Store.Events(context.Background(), i.key(id), 0, 1_000_000)
	if err != nil {
		if !errors.Is(err, runs.ErrDataLoss) {
			t.Errorf("the events of %s: %v", id, err)
		}
		return nil, false
	}
	events := make([]*teamv1.Event, len(records))
	for n, r := range records {
		if events[n] = r.Event; r.Seq != int64(n+1) || r.Event.GetSeq() != r.Seq {
			t.Errorf("I2: record %d of %s has sequence %d, its event %d", n+1, id, r.Seq, r.Event.GetSeq())
		}
	}
	return events, true
}

// terminal reports whether the root has ended.
func terminal(events []*teamv1.Event) bool {
	return slices.ContainsFunc(events, func(ev *teamv1.Event) bool { return ev.GetScope() == "" && ev.GetEnded() != nil })
}

// gapless checks I2: a reader receives all events in order, except those about claims.
func (i Invariants) gapless(t testing.TB, events, seen []*teamv1.Event) {
	t.Helper()
	if len(seen) == 0 {
		return
	}
	shown, last := map[int64]bool{}, int64(0)
	for _, ev := range seen {
		if ev.GetSeq() <= last {
			t.Errorf("I2: event %d was shown behind %d", ev.GetSeq(), last)
		}
		last = ev.GetSeq()
		shown[last] = true
	}
	for _, ev := range events {
		if !shown[ev.GetSeq()] && ev.GetClaimed() == nil {
			t.Errorf("I2: event %d was not shown: %v", ev.GetSeq(), ev)
		}
	}
}

// pairs checks I1.
func pairs(t testing.TB, events []*teamv1.Event) {
	t.Helper()
	begun, ends := map[string]int{}, map[string]int{}
	for _, ev := range events {
		switch scope := ev.GetScope(); {
		case ev.GetStarted().GetAttempt() == 1:
			begun[scope]++
		case ev.GetEnded() != nil:
			ends[scope]++
			if o := ev.GetEnded().GetOutcome(); begun[scope] == 0 && scope != "" && !refused(o) {
				t.Errorf("I1: step %q has not begun and has ended: %s", scope, o)
			}
		}
	}
	for scope, n := range ends {
		if n != 1 {
			t.Errorf("I1: step %q has %d ends", scope, n)
		}
	}
	for scope := range begun {
		if ends[scope] == 0 && terminal(events) {
			t.Errorf("I1: step %q has begun and has no end", scope)
		}
	}
}

// refused reports whether an outcome is that of a step that never started.
func refused(o teamv1.Outcome) bool {
	return o == teamv1.Outcome_OUTCOME_REJECTED || o == teamv1.Outcome_OUTCOME_SKIPPED || o == teamv1.Outcome_OUTCOME_CANCELED
}

// secretless checks I4 for the journal.
func secretless(t testing.TB, events []*teamv1.Event) {
	t.Helper()
	for _, ev := range events {
		if b, err := proto.Marshal(ev); err != nil || strings.Contains(string(b), Secret) {
			t.Errorf("I4: a secret is on record in event %d: %v", ev.GetSeq(), err)
		}
	}
}

// quiet checks I3.
func (i Invariants) quiet(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), quietTime)
	defer cancel()
	for _, m := range i.Models {
		if err := m.Quiet(ctx); err != nil {
			t.Errorf("I3: a model is still asked something: %v", err)
		}
	}
}

// recomputed checks I5: the task on the wire, and those of its delegations, equal the
// projection of their events.
func (i Invariants) recomputed(t testing.TB, id string, events []*teamv1.Event) {
	t.Helper()
	for n, scope := range append([]string{""}, begun(events)...) {
		f := project.New(id, scope)
		for _, ev := range events {
			f.Apply(ev)
		}
		if !f.Visible() {
			continue
		}
		task := i.get(t, agent.ChildTask(id, scope), n)
		want, _ := reduce.Reduce(f.Task(), i.Target.HTTP).(*a2av1.Task)
		if !proto.Equal(want, task) { // cmp.Diff is slow for nested lists, so it runs only on failure
			t.Errorf("I5: task %q is not what its events say (-events +task):\n%s", scope, cmp.Diff(want, task, protocmp.Transform()))
		}
		if text, err := protojson.Marshal(task); err != nil || strings.Contains(string(text), Secret) {
			t.Errorf("I4: a secret is in task %q: %v", scope, err)
		}
	}
}

// begun returns the scopes of the steps that started, without the root.
func begun(events []*teamv1.Event) []string {
	var scopes []string
	for _, ev := range events {
		if ev.GetStarted().GetAttempt() == 1 && ev.GetScope() != "" {
			scopes = append(scopes, ev.GetScope())
		}
	}
	return scopes
}

// client returns a client for the n-th binding that the server has.
func (i Invariants) client(t testing.TB, n int) (c Client, done func()) {
	t.Helper()
	target := i.Target
	target.Headers = nil
	switch {
	case n%3 == 1 && target.HTTP != "":
		return NewREST(target), func() {}
	case n%3 == 2 && target.HTTP != "":
		return NewJSONRPC(target), func() {}
	}
	g, err := NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	return g, func() { _ = g.Close() }
}

// get gets a task.
func (i Invariants) get(t testing.TB, id string, n int) *a2av1.Task {
	t.Helper()
	c, done := i.client(t, n)
	defer done()
	task, err := c.Get(context.Background(), &a2av1.GetTaskRequest{Id: id})
	if err != nil {
		t.Errorf("I5: task %s over %s: %v", id, c.Binding(), err)
	}
	return task
}

// unchanged checks I6: neither a cancel nor a message changes a task that has ended.
func (i Invariants) unchanged(t testing.TB, id string, events []*teamv1.Event) {
	t.Helper()
	if last := events[len(events)-1]; last.GetScope() != "" || last.GetEnded() == nil {
		t.Errorf("I6: there is an event behind the end: %v", last)
	}
	before := i.get(t, id, 0)
	c, done := i.client(t, 1)
	defer done()
	_, err := c.Cancel(context.Background(), &a2av1.CancelTaskRequest{Id: id})
	canceled := before.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_CANCELED // canceling again is not an error
	if err == nil && !canceled {
		t.Errorf("I6: %s has ended and was canceled", id)
	}
	late := Text("", "late-"+id, "more")
	late.Message.TaskId = id
	if _, err := c.Send(context.Background(), late); err == nil {
		t.Errorf("I6: %s has ended and takes a message", id)
	}
	if after := i.get(t, id, 1); !proto.Equal(before, after) {
		t.Errorf("I6: %s has ended and has changed:\n%s", id, cmp.Diff(before, after, protocmp.Transform()))
	}
	if now, _ := i.events(t, id); len(now) != len(events) {
		t.Errorf("I6: %s has ended and %d events have come", id, len(now)-len(events))
	}
}

// Logger returns a logger that fails the test if a line contains the secret (I4). It also
// writes to cores.
func Logger(t testing.TB, cores ...zapcore.Core) *zap.Logger {
	eye := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), &watch{t}, zap.DebugLevel)
	return zap.New(zapcore.NewTee(append(cores, eye)...))
}

// watch checks log lines.
type watch struct{ t testing.TB }

func (w *watch) Write(line []byte) (int, error) {
	if strings.Contains(string(line), Secret) {
		w.t.Errorf("I4: a secret is in the log: %s", line)
	}
	return len(line), nil
}

func (*watch) Sync() error { return nil }

// owners returns the owners that can call a server.
func owners(c server.Config) []string {
	if len(c.Settings.GetAuth().GetApiKeys()) == 0 {
		return []string{LocalOwner}
	}
	var list []string
	for _, k := range c.Settings.GetAuth().GetApiKeys() {
		list = append(list, k.GetAccount()+"/"+k.GetName())
	}
	return list
}
