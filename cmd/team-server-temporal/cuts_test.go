//go:build linux

package main_test

import (
	"net/url"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/agentteams/team-server/internal/testkit/child"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/agent"
)

// onPostgres returns a setup in which Temporal keeps its state in PostgreSQL, so that it can be killed.
func onPostgres(t *testing.T, yaml string) setup {
	t.Helper()
	db := pgtest.New(t)
	u, err := url.Parse(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	return setup{yaml: yaml, store: db.Schema(t), temporal: []string{"-postgres", u.Host, "-port", child.FreePort(t)}}
}

// TestTemporal_Killed: Temporal is killed under load and comes back. Every run that was acknowledged ends, under its first
// claim, and Temporal hears of each once.
func TestTemporal_Killed(t *testing.T) {
	t.Parallel()
	s := onPostgres(t, agents).start(t)
	servers := []*server{s.serve("a"), s.serve("b")}
	var mu sync.Mutex
	var ids []string
	var senders sync.WaitGroup
	stop := make(chan struct{})
	for i := range 16 {
		senders.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				to := "echo"
				if n%20 == 0 {
					to = "slow"
				}
				id := servers[n%2].send(t, to, "x", true).GetId()
				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
				_ = agent.Sleep(t.Context(), 500*time.Millisecond)
			}
		})
	}
	_ = agent.Sleep(t.Context(), 2*time.Second)
	away := time.Duration(many(8, 30)) * time.Second
	s.temporal.End(syscall.SIGKILL)
	_ = agent.Sleep(t.Context(), away)
	s.startTemporal()
	back := time.Now()
	_ = agent.Sleep(t.Context(), 2*time.Second)
	close(stop)
	senders.Wait()
	s.until(len(ids), ended)
	t.Logf("Temporal was away for %v; all of %d runs had ended %v later", away, len(ids), time.Since(back))
	if n := s.number(again); n > 0 {
		t.Errorf("%d runs were claimed more than once", n)
	}
	if n := len(s.workflows(`WorkflowType = "team-server.run"`)); n > len(ids) {
		t.Errorf("%d runs have %d workflows", len(ids), n)
	}
}

// steady takes longer than three leases.
const steady = "  steady: {scripted: {steps: [{delay_ms: 10000}, {text: done}]}}\n"

// TestTemporal_CutFromTemporal: a server that Temporal cannot reach goes on with what it drives, and no other one drives it.
func TestTemporal_CutFromTemporal(t *testing.T) {
	t.Parallel()
	s := start(t, agents+steady)
	own := newDoor(t, s.door.to)
	a := s.serveWith("a", s.fileFor(own.address(), s.store), nil)
	id := a.send(t, "steady", "x", true).GetId()
	a.await(t, id, working)
	b := s.serve("b")
	own.close()
	b.await(t, id, completed)
	if n := s.number(again); n > 0 {
		t.Error("another server claimed the run")
	}
	own.open()
	b.send(t, "echo", "x", false)
}

// TestTemporal_CutFromTheStore: what a server drives that the database cannot reach goes on at another one.
func TestTemporal_CutFromTheStore(t *testing.T) {
	t.Parallel()
	s := start(t, agents+steady)
	u, err := url.Parse(s.store)
	if err != nil {
		t.Fatal(err)
	}
	own := newDoor(t, u.Host)
	u.Host = own.address()
	a := s.serveWith("a", s.fileFor(s.door.address(), u.String()), nil)
	id := a.send(t, "steady", "x", true).GetId()
	a.await(t, id, working)
	b := s.serve("b")
	own.close()
	cut := time.Now()
	b.await(t, id, completed)
	took := time.Since(cut)
	t.Logf("the run had ended %v after the cut", took)
	if most := 3*lease + 10*time.Second + 5*time.Second; took > most { // a drive takes 10 s; the machine may be busy
		t.Errorf("more than %v", most)
	}
	if n := s.number(`SELECT epoch FROM run WHERE id = $1`, id); n != 2 {
		t.Errorf("the run was claimed %d times, want 2", n)
	}
	own.open()
	a.await(t, a.send(t, "echo", "x", true).GetId(), completed)
}

// TestTemporal_Operator: people delete, terminate and reset workflows of runs that wait, that are driven, and that are
// driven by a server that dies before its next heartbeat. All runs go on.
func TestTemporal_Operator(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	acts := []func(id string) error{
		func(id string) error { return s.client.TerminateWorkflow(t.Context(), id, "", "test") },
		func(id string) error {
			_, err := s.client.WorkflowService().DeleteWorkflowExecution(t.Context(), &workflowservice.DeleteWorkflowExecutionRequest{Namespace: s.namespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: id}})
			return err
		},
		func(id string) error {
			const firstTask = 5 // started, signaled, and scheduled, started and completed
			_, err := s.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
				Namespace: s.namespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: id}, Reason: "test", RequestId: uuid.NewString(), WorkflowTaskFinishEventId: firstTask,
			})
			return err
		},
	}
	a := s.serve("a")
	begin := func(to string) (ids []string) {
		for range acts {
			ids = append(ids, a.send(t, to, "x", true).GetId())
		}
		return ids
	}
	act := func(ids []string) {
		for i, id := range ids {
			if err := acts[i%len(acts)](id); err != nil {
				t.Fatal(err)
			}
		}
	}
	asks, slow := begin("asks"), begin("slow")
	s.until(len(asks), parked)
	for _, id := range slow {
		a.await(t, id, working)
	}
	act(append(asks, slow...))
	began := time.Now()
	for _, id := range asks {
		a.reply(t, id, "that one")
	}
	for _, id := range append(asks, slow...) {
		a.await(t, id, completed)
	}
	t.Logf("with their server alive, all runs had ended after %v", time.Since(began))
	if most := 4*time.Second + 2*lease + 5*time.Second; time.Since(began) > most { // a drive takes 4 s; the machine may be busy
		t.Errorf("more than %v", most)
	}

	dying := begin("slow")
	for _, id := range dying {
		a.await(t, id, working)
	}
	b := s.serve("b")
	act(dying)
	a.End(syscall.SIGKILL)
	killed := time.Now()
	for _, id := range dying {
		b.await(t, id, completed)
	}
	t.Logf("with their server dead, all runs had ended after %v", time.Since(killed))
	if most := 4*time.Second + 3*lease + 5*time.Second; time.Since(killed) > most {
		t.Errorf("more than %v", most)
	}
	if n := s.number(`SELECT count(*) FROM run WHERE epoch > 2`); n > 0 {
		t.Errorf("%d runs were claimed more than twice", n)
	}
}

// TestTemporal_MoveModes: runs of teams of every mode, some of which wait and some of which are driven, are moved there and
// back, after a server was stopped and after it was killed.
func TestTemporal_MoveModes(t *testing.T) {
	t.Parallel()
	yaml := demo(t, 10) + "  gate: {workflow: {steps: [{id: ask, human: {question: Go}}, {id: go, agent: newsroom, task: \"{{input}}\"}]}}\n"
	s := start(t, yaml)
	n := many(24, 204) // divisible by the number of teams
	teams := []string{"newsroom", "release", "company", "panel", "reception", "gate"}
	begin := func(r *server) (gates []string) {
		ids := make([]string, n)
		each(n, func(i int) { ids[i] = r.send(t, teams[i%len(teams)], "Write about tides", true).GetId() })
		for i := len(teams) - 1; i < n; i += len(teams) {
			gates = append(gates, ids[i])
			r.await(t, ids[i], waiting)
		}
		return gates
	}
	answer := func(r *server, gates []string) {
		for _, id := range gates {
			r.reply(t, id, "yes")
		}
	}
	move := func(to string) {
		t.Helper()
		t.Logf("%d runs are driven, %d wait, %d have ended", s.number(driven), s.number(parked), s.number(ended))
		_ = agent.Sleep(t.Context(), lease+time.Second)
		if out, err := s.move(to); err != nil {
			t.Fatalf("a move: %v\n%s", err, out)
		}
	}
	plain := func(name string) *server {
		t.Helper()
		r, err := s.servePlain(name)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := s.serve("first")
	gates := begin(first)
	first.End(syscall.SIGKILL)
	move("store")
	second := plain("second")
	answer(second, gates[:len(gates)/2])
	more := begin(second)
	second.End(syscall.SIGKILL)
	move("temporal")
	third := s.serve("third")
	answer(third, append(gates[len(gates)/2:], more...))
	more = begin(third)
	third.End(syscall.SIGTERM)
	move("store")
	fourth := plain("fourth")
	answer(fourth, more)
	more = begin(fourth)
	fourth.End(syscall.SIGTERM)
	move("temporal")
	fifth := s.serve("fifth")
	answer(fifth, more)
	s.until(4*n, ended)
	for _, team := range teams {
		if got := s.number(`SELECT count(*) FROM task JOIN run ON run.id = task.id WHERE agent = $1 AND state = $2`, team, int64(completed)); got != int64(4*n/len(teams)) {
			t.Errorf("%d of %d runs of %s have completed", got, 4*n/len(teams), team)
		}
	}
	for _, w := range s.workflows(`WorkflowType = "team-server.run" AND ExecutionStatus = "Running"`) {
		if s.number(`SELECT count(*) FROM run WHERE id = $1 AND ended IS NULL`, w.GetExecution().GetWorkflowId()) > 0 {
			t.Errorf("the workflow of %s is open", w.GetExecution().GetWorkflowId())
		}
	}
}
