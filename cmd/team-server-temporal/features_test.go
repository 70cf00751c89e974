//go:build linux

package main_test

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/agentteams/team-server/internal/testkit/collector"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// TestTemporal_Roles: what a front accepts is driven by workers, and callers do not notice it.
func TestTemporal_Roles(t *testing.T) {
	t.Parallel()
	s := setup{yaml: rig.RolesAgents, server: rig.RolesServer}.start(t)
	rig.Roles(t, func(flags ...string) rig.Process {
		r := s.serve("roles", flags...)
		return rig.Process{Ready: r.Ready, Log: r.Log, Kill: func() { r.End(syscall.SIGKILL) }}
	})
}

// run runs a command of the program and returns what it has printed.
func (s *stack) run(args ...string) string {
	s.Helper()
	out, err := exec.CommandContext(s.Context(), s.program, args...).CombinedOutput()
	if err != nil {
		s.Errorf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// found waits until a query of Temporal finds a number of workflows.
func (s *stack) found(query string, want int64) {
	s.Helper()
	var n int64
	for until := time.Now().Add(patience); time.Now().Before(until); _ = agent.Sleep(s.Context(), 50*time.Millisecond) {
		got, err := s.client.CountWorkflow(s.Context(), &workflowservice.CountWorkflowExecutionsRequest{Query: query})
		if err != nil {
			s.Fatal(err)
		}
		if n = got.GetCount(); n == want {
			return
		}
	}
	s.Errorf("%s finds %d workflows, want %d", query, n, want)
}

// TestTemporal_SearchAttributes: once they are registered, workflows are found by what is known of their tasks.
func TestTemporal_SearchAttributes(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	const missing = "engine register"
	if out := s.run("doctor", s.file); !strings.Contains(out, missing) {
		t.Errorf("doctor says not what is missing:\n%s", out)
	}
	for _, want := range []string{"new search attributes: TeamAgent, TeamAccount, TeamContext, TeamState", "has the search attributes"} {
		if out := s.run("engine", "register", s.file); !strings.Contains(out, want) {
			t.Errorf("%s, want %q", out, want)
		}
	}
	if out := s.run("doctor", s.file); strings.Contains(out, missing) {
		t.Errorf("doctor misses what is registered:\n%s", out)
	}
	r := s.serve("a")
	asks, echo := r.send(t, "asks", "x", false), r.send(t, "echo", "x", false)
	s.found(`TeamAccount = "local" and TeamState = "input-required"`, 1)
	s.found(`TeamAgent = "echo" and TeamState = "completed" and TeamContext = "`+echo.GetContextId()+`"`, 1)
	r.reply(t, asks.GetId(), "that one")
	r.await(t, asks.GetId(), completed)
	s.found(`TeamAccount = "local" and TeamState = "completed" and ExecutionStatus = "Completed"`, 2)
	s.found(`TeamState = "input-required"`, 0)
	t.Logf("%d events of a task that ends at once, %d of one with a question", s.events(echo.GetId()), s.events(asks.GetId()))
	s.record(asks.GetId(), "", "attributes")
}

// TestTemporal_UI: tasks get links a task to its workflow.
func TestTemporal_UI(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	r := s.serve("a")
	id := r.send(t, "echo", "x", false).GetId()
	want := "https://temporal.example/namespaces/" + s.namespace + "/workflows/" + id
	if out := s.run("--server", r.target.HTTP, "tasks", "get", id); !strings.Contains(out, "engine     "+want+"\n") {
		t.Errorf("no link to %s:\n%s", want, out)
	}
	if out := s.run("--server", r.target.HTTP, "-o", "json", "tasks", "get", id); !strings.Contains(out, strconv.Quote(want)) {
		t.Errorf("no link to %s:\n%s", want, out)
	}
}

// TestTemporal_Observed: the spans of a run that a worker drives are in the trace of the call that a front has answered, and
// the metrics of Temporal's client are among those of the server.
func TestTemporal_Observed(t *testing.T) {
	t.Parallel()
	s, to := start(t, agents), collector.New(t)
	s.env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + to.URL, "OTEL_METRICS_EXPORTER=otlp", "OTEL_METRIC_EXPORT_INTERVAL=500", "OTEL_BSP_SCHEDULE_DELAY=100"}
	front := s.serve("front", "--role", "front")
	s.serve("worker", "--role", "worker")
	front.send(t, "echo", "x", false)
	traces := map[string]map[string]bool{} // the services that have spans, by trace
	to.Until(t, "a trace of the front and the worker", func(spans []collector.Span) bool {
		for _, span := range spans {
			if traces[span.Trace()] == nil {
				traces[span.Trace()] = map[string]bool{}
			}
			traces[span.Trace()][span.Service] = true
		}
		for _, services := range traces {
			if services["front"] && services["worker"] && to.HasMetric("temporal_activity_execution_latency") {
				return true
			}
		}
		return false
	})
}
