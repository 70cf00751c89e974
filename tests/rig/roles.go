package rig

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// RolesAgents are the agents of the servers of Roles, and RolesServer what they have below server: besides their engine.
const (
	RolesAgents = `version: v1
agents:
  echo: {scripted: {steps: [{echo: true}]}}
  slow: {scripted: {steps: [{delay_ms: 1500}, {text: done}]}}
  long: {scripted: {steps: [{delay_ms: 600000}, {text: done}]}}
  asks: {scripted: {steps: [{ask: "Which one?"}, {text: "{{answer}}"}]}}
`
	RolesServer = `  metrics: "127.0.0.1:0"`
)

// Process is a server in a process of its own.
type Process struct {
	// Ready is what it printed when it was ready, and Log returns what it has logged, at level info.
	Ready string
	Log   func() string
	// Kill kills the process.
	Kill func()
}

// Roles plays what a front and workers do. start starts a server with the flags for its role; it ends after the test.
func Roles(t *testing.T, start func(flags ...string) Process) {
	t.Helper()
	front := start("--role=front", "--log-level=info")
	r := &roles{T: t}
	var web, rpc string
	if _, err := fmt.Sscanf(front.Ready, "http=%s grpc=%s", &web, &rpc); err != nil {
		t.Fatal(front.Ready, err)
	}
	var err error
	if r.front, err = NewGRPC(Target{GRPC: rpc, HTTP: "http://" + web}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.front.Close() })

	held := r.holds(front)
	worker := start("--role=worker", "--log-level=info")
	if worker.Ready != "http=off grpc=off" {
		t.Error("the worker listens:", worker.Ready)
	}
	r.page(worker, "/healthz")
	r.await(held, a2av1.TaskState_TASK_STATE_COMPLETED)
	r.waits()
	r.streams()
	r.halts()
	asks := r.send("asks", false)
	if state := asks.GetStatus().GetState(); state != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
		t.Error("a task that asks is", state)
	}
	slow := r.send("slow", true).GetId()
	r.await(slow, a2av1.TaskState_TASK_STATE_WORKING)
	worker.Kill()
	start("--role=worker")
	r.answer(asks.GetId())
	r.await(slow, a2av1.TaskState_TASK_STATE_COMPLETED)
}

// roles is a front.
type roles struct {
	*testing.T
	front *GRPC
}

// rolesPatience bounds every wait.
const rolesPatience = time.Minute

// holds has a front alone hold a task, which its metrics show.
func (r *roles) holds(front Process) (id string) {
	r.Helper()
	id = r.send("echo", true).GetId()
	_ = agent.Sleep(r.Context(), 1500*time.Millisecond) // longer than servers take to find what is due
	r.await(id, a2av1.TaskState_TASK_STATE_SUBMITTED)
	if m := r.page(front, "/metrics"); !strings.Contains(m, "\nteam_server_queue_due 1\n") {
		r.Error("the metrics of the front do not say that a task waits")
	}
	return id
}

// waits sends messages that wait for their answers. Workers learn at once of what a front accepts, not only when they
// look, which they do each second.
func (r *roles) waits() {
	r.Helper()
	const several = 5
	began := time.Now()
	for range several {
		if state := r.send("echo", false).GetStatus().GetState(); state != a2av1.TaskState_TASK_STATE_COMPLETED {
			r.Error("a message that waited for its answer returned", state)
		}
	}
	r.Logf("%d messages took %v", several, time.Since(began))
}

// streams follows a task until it is canceled.
func (r *roles) streams() {
	r.Helper()
	id, states := "", map[a2av1.TaskState]bool{}
	for update, err := range r.front.Stream(r.Context(), &a2av1.SendMessageRequest{Tenant: "long", Message: agent.UserMessage(uuid.NewString(), "tides")}) {
		if err != nil {
			r.Fatal(err)
		}
		if task := update.GetTask(); task != nil {
			id = task.GetId()
		}
		state := update.GetStatusUpdate().GetStatus().GetState()
		if states[state] = true; state != a2av1.TaskState_TASK_STATE_WORKING {
			continue
		}
		if _, err := r.front.Cancel(r.Context(), &a2av1.CancelTaskRequest{Id: id}); err != nil {
			r.Error(err)
		}
	}
	if !states[a2av1.TaskState_TASK_STATE_CANCELED] {
		r.Error("the stream does not show the cancel:", states)
	}
}

// halts ends what a worker drives by a halt at the front.
func (r *roles) halts() {
	r.Helper()
	long := r.send("long", true).GetId()
	r.await(long, a2av1.TaskState_TASK_STATE_WORKING)
	_, err := teamv1.NewHaltServiceClient(r.front.Conn).Halt(r.front.Context(r.Context()), &teamv1.HaltRequest{Kind: teamv1.HaltKind_HALT_KIND_AGENT, Name: "long", Reason: "test"})
	if err != nil {
		r.Error(err)
	}
	r.await(long, a2av1.TaskState_TASK_STATE_CANCELED)
}

// answer answers the question of a task, which ends.
func (r *roles) answer(id string) {
	r.Helper()
	m := agent.UserMessage(uuid.NewString(), "that one")
	m.TaskId = id
	resp, err := r.front.Send(r.Context(), &a2av1.SendMessageRequest{Message: m})
	if state := resp.GetTask().GetStatus().GetState(); err != nil || state != a2av1.TaskState_TASK_STATE_COMPLETED {
		r.Error("the answer at the front:", state, err)
	}
}

// send sends a message, and returns the task when it waits for people or has ended, or at once.
func (r *roles) send(to string, atOnce bool) *a2av1.Task {
	r.Helper()
	resp, err := r.front.Send(r.Context(), &a2av1.SendMessageRequest{
		Tenant: to, Message: agent.UserMessage(uuid.NewString(), "tides"), Configuration: &a2av1.SendMessageConfiguration{ReturnImmediately: atOnce},
	})
	if err != nil {
		r.Fatalf("send to %s: %v", to, err)
	}
	return resp.GetTask()
}

// await waits until a task is in a state.
func (r *roles) await(id string, want a2av1.TaskState) {
	r.Helper()
	var state a2av1.TaskState
	for until := time.Now().Add(rolesPatience); time.Now().Before(until); _ = agent.Sleep(r.Context(), 20*time.Millisecond) {
		task, err := r.front.Get(r.Context(), &a2av1.GetTaskRequest{Id: id})
		if state = task.GetStatus().GetState(); err == nil && state == want {
			return
		}
	}
	r.Fatalf("task %s is %v, want %v", id, state, want)
}

var metricsAt = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// page returns what a server serves where it serves its metrics.
func (r *roles) page(of Process, path string) string {
	r.Helper()
	address := ""
	for until := time.Now().Add(rolesPatience); address == "" && time.Now().Before(until); _ = agent.Sleep(r.Context(), 20*time.Millisecond) {
		address = metricsAt.FindString(of.Log()) // which is logged when the server is ready already
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, address+path, http.NoBody)
	if err != nil {
		r.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.Fatalf("%s: %d, %v", path, resp.StatusCode, err)
	}
	return string(body)
}
