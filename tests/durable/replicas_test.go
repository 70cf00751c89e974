//go:build linux

package durable

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
)

// slack is what everything that is not waited for may take on a busy machine.
const slack = 2 * time.Second

func flowJob(n int) job {
	return job{binding: n % bindings, message: fmt.Sprintf("m%d", n), agent: "flow", text: fmt.Sprintf("T%d", n)}
}

// TestReplicas_P1_A_14_Takeover kills the owner of a run in the middle of a workflow:
// another replica ends it, and subscribers on the other two see every event once.
func TestReplicas_P1_A_14_Takeover(t *testing.T) {
	c := newCluster(t, "a", "b", "c")
	c.hold("beta")
	w := c.begin("a", flowJob(1))
	first := c.next(t)
	owner := c.holder(w.task)
	t.Logf("%s holds the run, %s waits", owner, first.member)

	var readers sync.WaitGroup
	var seen []*watch
	for i, name := range c.others(owner) {
		j := flowJob(1)
		j.binding = i
		r := c.client(name, j)
		r.task = w.task
		seen = append(seen, r)
		readers.Go(func() {
			if err := r.follow(c.Context()); err != nil {
				t.Errorf("on %s: %v", name, err)
			}
		})
	}
	await(t, "subscribed", func() bool { _, _, sees := c.sees(w.task); return sees >= len(seen) })

	c.open("beta")
	killed := time.Now()
	c.replicas[owner].end(syscall.SIGKILL)
	c.collect()
	c.history.add(entry{Op: opKill})
	c.history.add(entry{Op: opStart})
	readers.Wait()
	took := time.Since(killed)
	t.Logf("the run ended %v after the kill", took.Round(time.Millisecond))
	if took > lease+time.Second+slack {
		t.Errorf("the run went on %v after the kill, with a lease of %v", took, lease)
	}
	c.checkReaders(seen)
	again := 0
	for _, e := range c.calls() {
		if e.Member == "beta" && strings.HasPrefix(e.Text, "cost ") {
			again++
		}
	}
	if again != 2 {
		t.Errorf("the step in flight was called %d times, want 2", again)
	}
}

// sees counts what was seen of a task.
func (c *cluster) sees(task string) (all []entry, last int64, snaps int) {
	entries, _ := c.history.all()
	for _, e := range entries {
		if e.Op == opSee && e.Task == task {
			all = append(all, e)
			last = max(last, e.Seq)
			if e.Snap {
				snaps++
			}
		}
	}
	return all, last, snaps
}

// checkReaders compares what each subscriber saw with the journal, as if it had
// been the only one.
func (c *cluster) checkReaders(readers []*watch) {
	c.Helper()
	entries, err := c.history.all()
	if err != nil {
		c.Fatal(err)
	}
	record, err := c.record(entries)
	if err != nil {
		c.Fatal(err)
	}
	for i, r := range readers {
		if !r.state.ended() {
			c.Errorf("subscriber %d saw no end", i)
		}
		var own []entry
		for _, e := range entries {
			if e.Op != opSee || e.reader == r {
				own = append(own, e)
			}
		}
		if err := r.end(c.Context()); err != nil {
			c.Error(err)
		}
		all, _ := c.history.all()
		own = append(own, all[len(all)-1])
		if err := check(own, record).err(); err != nil {
			c.Errorf("subscriber %d: %v", i, err)
		}
	}
}

// TestReplicas_P2_Stopped stops the owner of a run for longer than its lease: when
// it goes on, another one has ended the run; its commit is refused and it calls
// nobody any more.
func TestReplicas_P2_Stopped(t *testing.T) {
	c := newCluster(t, "a", "b")
	c.hold("beta")
	w := c.begin("a", flowJob(1))
	first := c.next(t)
	owner := c.holder(w.task)
	stopped := c.replicas[owner]
	// What was on record before the stop may still be sent after it: nothing can
	// refuse that. So all that is to be sent must have been.
	await(t, "the other members are called", func() bool { return len(c.calls()) == 4 })
	stopped.signal(syscall.SIGSTOP)
	c.collect()
	c.history.add(entry{Op: opKill})
	c.history.add(entry{Op: opStart})
	second := c.next(t) // the other one has called the step again
	if now := c.holder(w.task); now == owner {
		t.Fatalf("%s still holds the run", now)
	}
	c.open("beta")
	second.let()
	other := c.client(c.others(owner)[0], flowJob(1))
	other.task = w.task
	if err := other.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, journal := c.calls(), c.query("SELECT count(*)::text || max(seq)::text FROM event WHERE id = $1", w.task)

	first.let() // the answer waits in the stopped owner's socket
	stopped.signal(syscall.SIGCONT)
	await(t, "the owner learns that it has lost the run", func() bool {
		return strings.Contains(stopped.said(), "run was lost") || len(c.calls()) > len(before)
	})
	if s := stopped.end(syscall.SIGTERM); s.ExitStatus() != 0 {
		t.Errorf("the stopped replica ended with %v\n%s", s, stopped.tail())
	}
	after := c.calls()
	for _, e := range after[len(before):] {
		t.Errorf("after the run had ended %s was called: %s", e.Member, e.Text)
	}
	if got := c.query("SELECT count(*)::text || max(seq)::text FROM event WHERE id = $1", w.task); got != journal {
		t.Errorf("the journal has changed after its end: %s, was %s", got, journal)
	}
	c.checkReaders([]*watch{other})
}

// TestReplicas_A_14_S_24_Cancel cancels a run from a replica that does not own it.
func TestReplicas_A_14_S_24_Cancel(t *testing.T) {
	c := newCluster(t, "a", "b")
	c.hold("beta")
	w := c.begin("a", job{message: "m1", agent: "company", text: "T1"})
	call := c.next(t)
	other := c.others(c.holder(w.task))[0]
	e, err := c.fronts[other].await(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	task, err := e.clients[0][0].Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: w.task})
	took := time.Since(began)
	if err != nil {
		t.Fatal(err)
	}
	run := a2a.RunOf(task.GetMetadata())
	t.Logf("%v after %v; receipt: %s", task.GetStatus().GetState(), took.Round(time.Millisecond), protojson.Format(run.GetReceipt()))
	if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED || took > time.Second {
		t.Errorf("%v after %v, want CANCELED in less than a second", task.GetStatus().GetState(), took)
	}
	if len(run.GetReceipt().GetEntries()) == 0 {
		t.Error("the receipt is empty")
	}
	select {
	case <-call.gone:
	case <-time.After(patience):
		t.Error("the member still works")
	}
	before := c.calls()
	c.open("beta")
	call.let()
	for _, name := range []string{"a", "b"} {
		if s := c.replicas[name].end(syscall.SIGTERM); s.ExitStatus() != 0 {
			t.Errorf("%s ended with %v\n%s", name, s, c.replicas[name].tail())
		}
	}
	for _, e := range c.calls()[len(before):] {
		t.Errorf("after the cancel %s was called: %s", e.Member, e.Text)
	}
}

// TestReplicas_A_14_Listener cuts the connections that LISTEN: no event is lost.
func TestReplicas_A_14_Listener(t *testing.T) {
	c := newCluster(t, "a", "b")
	c.hold("beta")
	w := c.begin("a", flowJob(1))
	first := c.next(t)
	reader := c.client(c.others(c.holder(w.task))[0], flowJob(1))
	reader.task = w.task
	done := make(chan error, 1)
	go func() { done <- reader.follow(c.Context()) }()
	await(t, "subscribed", func() bool { _, _, snaps := c.sees(w.task); return snaps > 0 })
	cut := c.query("SELECT count(pg_terminate_backend(pid))::text FROM pg_stat_activity WHERE query ILIKE 'listen%' AND pid <> pg_backend_pid()")
	if cut == "0" {
		t.Fatal("nobody listens")
	}
	c.open("beta")
	first.let()
	let := time.Now()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("the subscriber sees no end")
	}
	t.Logf("%s listeners were cut; the end was seen %v later", cut, time.Since(let).Round(time.Millisecond))
	c.checkReaders([]*watch{reader})
}

// TestReplicas_P1_Postmaster kills the database server under load.
func TestReplicas_P1_Postmaster(t *testing.T) {
	t.Parallel() // it waits for the database, and measures no time
	const kills, acks = 3, 150
	pg := pgtest.New(t)
	c := clusterOn(t, pg.Schema(t), "a")
	c.gate = nil
	l := startLoad(t.Context(), c.history, c.fronts["a"], seed(t))
	defer l.abandon()
	for n := range kills {
		c.reach(l, acks)
		pg.Kill()
		_, open, _ := c.history.standing()
		c.history.add(entry{Op: opKill, Text: fmt.Sprintf("postmaster, time %d", n+1), Count: open})
		c.history.add(entry{Op: opStart, Both: true}) // the server goes on
		if err := pg.Start(); err != nil {
			t.Fatal(err)
		}
	}
	c.reach(l, acks)
	if err := l.finish(); err != nil {
		tail := c.replicas["a"].tail()
		c.replicas["a"].end(syscall.SIGQUIT)
		t.Fatalf("%v\n%s\nmore in %s", err, tail, c.replicas["a"].log)
	}
	c.collect()
	r, err := c.verdict(c.history)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v", r)
	if err := r.err(); err != nil {
		t.Error(err)
	}
}

// reach waits for a number of acknowledgements, counted from the last start.
func (c *cluster) reach(l *load, acks int) {
	c.Helper()
	if _, err := l.reach(acks, 0, nil); err != nil {
		c.Fatal(err)
	}
}

// TestReplicas_P12_Rolling restarts two replicas in turn under load: nothing is
// lost, readiness goes within a second, and they end in order.
func TestReplicas_P12_Rolling(t *testing.T) {
	restarts := int(number(t, restartsVariable, 2))
	c := newCluster(t, "a", "b")
	c.gate = nil
	f := newFront()
	l := startLoad(t.Context(), c.history, f, seed(t))
	defer l.abandon()
	for n := range restarts {
		names := []string{"a", "b"}
		leaves, stays := names[n%2], names[(n+1)%2]
		if err := f.serve(c.replicas[leaves].target); err != nil {
			t.Fatal(err)
		}
		c.history.add(entry{Op: opStart, Both: true})
		c.reach(l, 150)
		if err := f.serve(c.replicas[stays].target); err != nil {
			t.Fatal(err)
		}
		c.leave(leaves)
		c.start(leaves)
	}
	if err := l.finish(); err != nil {
		t.Fatal(err)
	}
	f.gone()
	c.collect()
	r, err := c.verdict(c.history)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d restarts: %v", restarts, r)
	if err := r.err(); err != nil {
		t.Error(err)
	}
}

// leave asks a replica to end and looks how it does.
func (c *cluster) leave(name string) {
	c.Helper()
	r := c.replicas[name]
	asked := time.Now()
	r.signal(syscall.SIGTERM)
	await(c, "not ready any more", func() bool { return !isReady(r.target) })
	if took := time.Since(asked); took > time.Second {
		c.Errorf("%s was ready for %v after SIGTERM", name, took)
	}
	if s := r.wait(c); s.ExitStatus() != 0 || s.Signaled() {
		c.Errorf("%s ended with %v after %v\n%s", name, s, time.Since(asked), r.tail())
	}
	if took := time.Since(asked); took > patience {
		c.Errorf("%s took %v to end", name, took)
	}
}

// isReady asks for readiness.
func isReady(target rig.Target) bool {
	ctx, stop := context.WithTimeout(context.Background(), slack)
	defer stop()
	a, err := target.Do(ctx, http.MethodGet, "/readyz", nil, nil)
	if err != nil {
		return false
	}
	_, _ = a.Body()
	return a.Status == http.StatusOK
}
