package tracing

import (
	"encoding/hex"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/collector"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

const waits = `version: v1
agents:
  asks: {scripted: {steps: [{ask: "which?"}, {text: "{{answer}}"}]}}
  slips: {scripted: {steps: [{fail: 1}, {text: done}]}}
teams:
  desk:
    members: [{agent: slips}, {agent: asks}]
    workflow: {steps: [{id: one, agent: slips}, {id: two, agent: asks, after: [one]}, {id: never, agent: slips, after: [two], when: "false"}]}
    limits: {retry: {attempts: 2, backoff: 1ms}}
server: {default_agent: desk}
`

// ask begins a task, and waits until it asks a question.
func ask(t *testing.T, s *whole.Server) *a2av1.Task {
	t.Helper()
	at := s.Target
	at.Headers = map[string]string{"Traceparent": theirs}
	resp, err := rig.NewREST(at).Send(t.Context(), rig.Text("desk", "m1", "x"))
	if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
		t.Fatal(resp, err)
	}
	return resp.GetTask()
}

// answer answers the question of a task, which then ends.
func answer(t *testing.T, s *whole.Server, task *a2av1.Task) {
	t.Helper()
	req := rig.Text("desk", "m2", "this one")
	req.Message.TaskId, req.Message.ContextId = task.GetId(), task.GetContextId()
	resp, err := rig.NewREST(s.Target).Send(t.Context(), req)
	if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Fatal(resp, err)
	}
}

// tree returns the trace of the run of desk.
func tree(t *testing.T, all []collector.Span) (run collector.Span, printed string) {
	t.Helper()
	run = only(t, all, func(s collector.Span) bool { return s.GetName() == "invoke_workflow desk" })
	var of []collector.Span
	for _, s := range all {
		if s.Trace() == run.Trace() {
			of = append(of, s)
		}
	}
	return run, collector.Tree(of, func(s collector.Span) string {
		return strings.TrimPrefix(costs(s), " ["+s.Service+"]")
	})
}

// TestS_66_Waits: a step that was repeated has a span for each attempt, one that was skipped has one, and a run that waits
// for people has a claim for each time that it was driven.
func TestS_66_Waits(t *testing.T) {
	to := traced(t)
	s := whole.Open(t, rig.SQLite(t), waits, fakellm.New(t))
	task := ask(t, s)
	answer(t, s, task)
	s.Stop()
	_, got := tree(t, to.Spans())
	t.Log("\n" + got)
	const want = `SendMessage 1 link
  invoke_workflow desk
    claim
    plan desk
    invoke_agent slips error UNAVAILABLE
    invoke_agent slips
    plan desk
    invoke_agent asks
    claim 1 link
    plan desk
    invoke_agent slips
    plan desk
`
	if sorted(got) != sorted(want) {
		t.Errorf("the tree is\n%s", got)
	}
	for _, s := range to.Spans() {
		if s.Text("team_server.outcome") == "skipped" && s.GetStartTimeUnixNano() != s.GetEndTimeUnixNano() {
			t.Error("the step that was skipped has a duration")
		}
	}
}

// TestS_66_BegunWithoutTraces: a task that was begun by a server without traces, or of an earlier version, has a trace of
// its own, with a link to the caller, who is not trusted.
func TestS_66_BegunWithoutTraces(t *testing.T) {
	place := rig.SQLite(t)
	s := whole.Open(t, place, waits, fakellm.New(t))
	task := ask(t, s)
	s.Stop()
	to := traced(t)
	s = whole.Open(t, place, waits, fakellm.New(t))
	answer(t, s, task)
	s.Stop()
	run, got := tree(t, to.Spans())
	t.Log("\n" + got)
	if run.Trace() == theirTrace || run.Parent() != "" || len(run.GetLinks()) != 1 || hex.EncodeToString(run.GetLinks()[0].GetSpanId()) != theirSpan {
		t.Errorf("the run is in trace %s with links %v", run.Trace(), run.GetLinks())
	}
	const want = `invoke_workflow desk 1 link
  invoke_agent asks
  claim 1 link
  plan desk
  invoke_agent slips
  plan desk
`
	if sorted(got) != sorted(want) {
		t.Errorf("the tree is\n%s", got)
	}
}
