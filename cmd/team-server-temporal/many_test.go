//go:build linux

package main_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// many returns how many runs a test has: few, or all if tests run all of their cases.
func many(few, all int) int {
	if sample.All() {
		return all
	}
	return few
}

// each calls one for the numbers below n, 32 at a time.
func each(n int, one func(i int)) {
	var wg sync.WaitGroup
	for worker := range 32 {
		wg.Go(func() {
			for i := worker; i < n; i += 32 {
				one(i)
			}
		})
	}
	wg.Wait()
}

// until waits until a query of the database selects a number.
func (s *stack) until(want int, query string, args ...any) {
	s.Helper()
	limit := patience + time.Duration(want)*100*time.Millisecond
	for began := time.Now(); ; {
		got := s.number(query, args...)
		if got == int64(want) {
			return
		}
		if time.Since(began) > limit {
			s.Fatalf("%s: %d after %v, want %d", query, got, limit, want)
		}
		_ = agent.Sleep(s.Context(), 50*time.Millisecond)
	}
}

const (
	parked = `SELECT count(*) FROM run WHERE epoch > 0 AND holder IS NULL AND ended IS NULL AND (due IS NULL OR due > 60000 + 1000 * extract(epoch FROM now()))`
	ended  = `SELECT count(*) FROM run WHERE ended IS NOT NULL`
	driven = `SELECT count(*) FROM run WHERE holder IS NOT NULL`
	again  = `SELECT count(*) FROM run WHERE epoch > 1`
)

// TestTemporal_Waiting: runs that wait for an answer hold next to nothing in a server, and end when they have it.
func TestTemporal_Waiting(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	n := many(200, 10_000)
	var log bytes.Buffer
	servers := []*server{s.serve("a"), s.serveWith("b", s.file, &log)}
	before := resident(t, servers[0]) + resident(t, servers[1])
	began := time.Now()
	ids := make([]string, n)
	each(n, func(i int) { ids[i] = servers[i%2].send(t, "asks", "x", true).GetId() })
	acknowledged := time.Since(began)
	s.until(n, parked)
	wait, held := time.Since(began), resident(t, servers[0])+resident(t, servers[1])-before
	servers[1].End(syscall.SIGQUIT) // prints its goroutines
	goroutines := strings.Count(log.String(), "\ngoroutine ")
	if goroutines == 0 || goroutines >= 300 {
		t.Errorf("a server had %d goroutines while %d runs waited", goroutines, n)
	}
	began = time.Now()
	each(n, func(i int) { servers[0].reply(t, ids[i], "that one") })
	s.until(n, ended)
	t.Logf("%d runs: acknowledged in %v, waited after %v, with %d KiB more in two servers, of which one had %d goroutines; all had ended %v after the first answer",
		n, acknowledged, wait, held, goroutines, time.Since(began))
}

// TestTemporal_Halted: runs that a halt has paused go on when it ends, each with few events.
func TestTemporal_Halted(t *testing.T) {
	t.Parallel()
	s := start(t, agents+"  nap: {scripted: {steps: [{delay_ms: 1000}, {text: done}]}}\n")
	n := many(300, 10_000)
	servers := []*server{s.serve("a"), s.serve("b")}
	ids := make([]string, n)
	each(n, func(i int) { ids[i] = servers[i%2].send(t, "nap", "x", true).GetId() })
	halts := teamv1.NewHaltServiceClient(rig.Services(t, servers[0].target)[0])
	if _, err := halts.Halt(t.Context(), &teamv1.HaltRequest{Kind: teamv1.HaltKind_HALT_KIND_AGENT, Name: "nap", Reason: "test", Pause: true}); err != nil {
		t.Fatal(err)
	}
	s.until(0, `SELECT count(*) FROM run WHERE due IS NOT NULL OR holder IS NOT NULL`)
	paused, claims := s.number(parked), s.number(`SELECT sum(epoch) FROM run`)
	_ = agent.Sleep(t.Context(), 3*time.Second)
	if now := s.number(`SELECT sum(epoch) FROM run`); paused == 0 || now != claims {
		t.Errorf("%d runs are paused, and %d were claimed while the agent was halted", paused, now-claims)
	}
	resumed := time.Now()
	if _, err := halts.Resume(t.Context(), &teamv1.ResumeRequest{Kind: teamv1.HaltKind_HALT_KIND_AGENT, Name: "nap"}); err != nil {
		t.Fatal(err)
	}
	s.until(n, ended)
	t.Logf("%d of %d runs were paused; all had ended %v after the halt", paused, n, time.Since(resumed))
	if now := s.number(`SELECT sum(epoch) FROM run`); now-claims > paused {
		t.Errorf("%d paused runs were claimed %d times", paused, now-claims)
	}
	for _, id := range ids[:50] {
		if n := s.events(id); n > 30 {
			t.Errorf("the workflow of a run that was paused has %d events", n)
		}
	}
}

// TestTemporal_MaxRunning: of an account that may have two tasks running no third one is driven by any server, and tasks of
// others do not wait for its own.
func TestTemporal_MaxRunning(t *testing.T) {
	t.Parallel()
	s := setup{
		yaml:   agents + "  nap: {scripted: {steps: [{delay_ms: 100}, {text: done}]}}\n",
		server: fmt.Sprintf("  accounts: {acme: {max_running: 2}}\n  auth: {api_keys: [{name: ann, account: acme, sha256: %s}, {name: bob, account: other, sha256: %s}]}", rig.Key("acme", "ann").GetSha256(), rig.Key("other", "bob").GetSha256()),
	}.start(t)
	n := many(60, 1000)
	a, b := s.serve("a").as("acme", "ann"), s.serve("b").as("other", "bob")
	each(n, func(int) { a.send(t, "nap", "x", true) })
	began := time.Now()
	b.send(t, "echo", "x", false)
	took := time.Since(began)
	if took > 2*time.Second {
		t.Errorf("the task of another account took %v", took)
	}
	most := int64(0)
	for int64(n) > s.number(ended+` AND owner LIKE 'acme/%'`) {
		most = max(most, s.number(driven+` AND owner LIKE 'acme/%'`))
	}
	if most > 2 {
		t.Errorf("%d tasks of the account were driven at the same time", most)
	}
	t.Logf("%d tasks, of which 2 may run, had ended after %v; that of another account took %v", n, time.Since(began), took)
}

// as returns the server for another caller.
func (r *server) as(account, name string) *server {
	c := *r
	c.target = r.target.As(account, name)
	var err error
	if c.GRPC, err = rig.NewGRPC(c.target); err != nil {
		panic(err)
	}
	context.AfterFunc(r.ctx, func() { _ = c.Close() })
	return &c
}

// TestTemporal_Slots: a run for which a server has no slot waits until it has one.
func TestTemporal_Slots(t *testing.T) {
	t.Parallel()
	const slots = 256
	s := start(t, agents)
	r := s.serve("a")
	ids := make([]string, slots)
	each(slots, func(i int) { ids[i] = r.send(t, "long", "x", true).GetId() })
	s.until(slots, driven)
	last := r.send(t, "echo", "x", true).GetId()
	_ = agent.Sleep(t.Context(), 3*lease) // also longer than it takes until servers drive what is overdue
	if n := s.number(`SELECT epoch FROM run WHERE id = $1`, last); n != 0 {
		t.Error("the run was claimed without a slot")
	}
	if n := s.events(last); n > 20 {
		t.Errorf("the workflow of a run that waits for a slot has %d events", n)
	}
	if _, err := r.Cancel(r.ctx, &a2av1.CancelTaskRequest{Id: ids[0]}); err != nil {
		t.Fatal(err)
	}
	r.await(t, last, completed)
}

// TestTemporal_Questions: the workflow of a run with many questions continues as new, and no answer is lost.
func TestTemporal_Questions(t *testing.T) {
	t.Parallel()
	n := many(15, 1000)
	c := setup{yaml: "version: v1\nagents:\n  curious: {scripted: {steps: [" + strings.Repeat(`{ask: "Which one?"}, `, n) + "{text: done}]}}\n"}
	if !sample.All() {
		c.temporal = []string{"-suggest", "80"} // 4096 otherwise
	}
	s := c.start(t)
	r := s.serve("a")
	task := r.send(t, "curious", "x", false)
	for i := range n {
		if task.GetStatus().GetState() != waiting {
			t.Fatalf("before answer %d the task is %v", i, task.GetStatus())
		}
		m := agent.UserMessage(fmt.Sprintf("answer-%d", i), "that one")
		m.TaskId = task.GetId()
		resp, err := r.Send(r.ctx, &a2av1.SendMessageRequest{Message: m})
		if err != nil {
			t.Fatal(err)
		}
		task = resp.GetTask()
	}
	if task.GetStatus().GetState() != completed {
		t.Errorf("after all answers the task is %v", task.GetStatus())
	}
	runs := s.workflows(fmt.Sprintf("WorkflowId = %q", task.GetId()))
	continued := 0
	for _, w := range runs {
		if w.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW {
			if continued++; continued == 1 {
				s.record(task.GetId(), w.GetExecution().GetRunId(), "continued")
			}
		}
	}
	if t.Logf("%d questions took %d workflows", n, len(runs)); continued == 0 {
		t.Error("the workflow did not continue as new")
	}
}

// workflows returns the workflows of a query, when Temporal's index of them is up to date.
func (s *stack) workflows(query string) (all []*workflowpb.WorkflowExecutionInfo) {
	s.Helper()
	_ = agent.Sleep(s.Context(), 2*time.Second)
	for token := []byte(nil); ; {
		page, err := s.client.ListWorkflow(s.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: query, NextPageToken: token})
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, page.GetExecutions()...)
		if token = page.GetNextPageToken(); len(token) == 0 {
			return all
		}
	}
}

// TestTemporal_Timer: a question without an answer expires at its time.
func TestTemporal_Timer(t *testing.T) {
	t.Parallel()
	s := start(t, agents+"teams:\n  expires: {workflow: {steps: [{id: ask, timeout: 2s, human: {question: Which}}, {id: go, agent: echo}]}}\n")
	id := s.serve("a").send(t, "expires", "x", true).GetId()
	s.until(1, ended)
	s.record(id, "", "timer")
}
