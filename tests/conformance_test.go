package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/conformance"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// TestConformance has the agent for kits do everything that it is asked to,
// over the three bindings.
func TestConformance(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		l := live(t, at, rig.Manager(t, conformance.New(conformance.Config{ID: "kit", StreamTimeout: time.Millisecond})))
		for i, c := range l.clients {
			for _, tt := range behaviours {
				t.Run(tt.id, func(t *testing.T) {
					resp, err := c.Send(t.Context(), rig.Text("kit", tt.id+"-"+string(rune('a'+i)), "hello"))
					if err != nil {
						t.Fatal(err)
					}
					got := resp.GetTask()
					if tt.message != "" {
						if got != nil || agent.Text(resp.GetMessage()) != tt.message {
							t.Fatal(resp)
						}
						return
					}
					if got.GetStatus().GetState() != tt.state || agent.Text(got.GetStatus().GetMessage()) != tt.status {
						t.Error(got.GetStatus())
					}
					var parts []*a2av1.Part
					for _, a := range got.GetArtifacts() {
						parts = append(parts, a.GetParts()...)
					}
					if diff := cmp.Diff(tt.parts, parts, protocmp.Transform()); diff != "" {
						t.Error(diff)
					}
				})
			}
			ask := func(t *testing.T, name string) *a2av1.Task {
				t.Helper()
				return send(t, c, rig.Text("kit", "tck-input-required-"+name+string(rune('a'+i)), "hello"))
			}
			answer := func(t *testing.T, task, id, text string) *a2av1.Task {
				t.Helper()
				m := rig.Text("kit", id+string(rune('a'+i)), text)
				m.Message.TaskId = task
				return send(t, c, m)
			}
			t.Run("tck-input-required is completed by an answer with any other id", func(t *testing.T) {
				if done := answer(t, ask(t, "again-").GetId(), "answer-", "yes"); done.GetStatus().GetState() != completedState {
					t.Error(done)
				}
			})
			t.Run("the id of an answer says what it leads to", func(t *testing.T) {
				task := ask(t, "history-").GetId()
				for n := range 2 {
					asking := answer(t, task, fmt.Sprintf("tck-input-required-more-%d-", n), fmt.Sprintf("message %d", n))
					if asking.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED || agent.Text(asking.GetStatus().GetMessage()) != "More input is needed" {
						t.Fatal(asking)
					}
				}
				done := answer(t, task, "tck-complete-task-history-", "enough")
				if done.GetStatus().GetState() != completedState || agent.Text(done.GetStatus().GetMessage()) != "Hello from TCK" {
					t.Error(done.GetStatus())
				}
				var said []string
				for _, m := range done.GetHistory() {
					if m.GetRole() == a2av1.Role_ROLE_USER {
						said = append(said, agent.Text(m))
					}
				}
				if diff := cmp.Diff([]string{"hello", "message 0", "message 1", "enough"}, said); diff != "" {
					t.Error(diff)
				}
				rejected := answer(t, ask(t, "reject-").GetId(), "tck-reject-task-answer-", "no")
				if rejected.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_REJECTED {
					t.Error(rejected.GetStatus())
				}
			})
			t.Run("streams begin with the task and end with its end, the pieces in order", func(t *testing.T) {
				var texts []string
				var last a2av1.TaskState
				pieces := 0
				for r, err := range c.Stream(t.Context(), rig.Text("kit", "tck-stream-artifact-chunked-"+string(rune('x'+i)), "hello")) {
					if err != nil {
						t.Fatal(err)
					}
					if u := r.GetArtifactUpdate(); u != nil {
						pieces++
						texts = append(texts, agent.Text(&a2av1.Message{Parts: u.GetArtifact().GetParts()}))
						if u.GetAppend() != (pieces == 2) || u.GetLastChunk() != (pieces == 2) {
							t.Error(u)
						}
					}
					if u := r.GetStatusUpdate(); u != nil {
						last = u.GetStatus().GetState()
					}
				}
				if last != a2av1.TaskState_TASK_STATE_COMPLETED {
					t.Error(last)
				}
				if diff := cmp.Diff([]string{"chunk-1 ", "chunk-2"}, texts); diff != "" {
					t.Error(diff)
				}
			})
		}
	})
}

const completedState = a2av1.TaskState_TASK_STATE_COMPLETED

// behaviours are what each message id leads to.
var behaviours = []struct {
	id, message, status string
	state               a2av1.TaskState
	parts               []*a2av1.Part
}{
	{id: "tck-complete-task", state: completedState, status: "Hello from TCK"},
	{id: "tck-artifact-text", state: completedState, parts: agent.TextParts("Generated text content")},
	{id: "tck-artifact-file", state: completedState, parts: []*a2av1.Part{{
		Content: &a2av1.Part_Raw{Raw: []byte("Generated file content")}, Filename: "output.txt", MediaType: "text/plain",
	}}},
	{id: "tck-artifact-file-url", state: completedState, parts: []*a2av1.Part{{
		Content: &a2av1.Part_Url{Url: "https://example.com/output.txt"}, Filename: "output.txt", MediaType: "text/plain",
	}}},
	{id: "tck-artifact-data", state: completedState, parts: []*a2av1.Part{{Content: &a2av1.Part_Data{Data: structpb.NewStructValue(&structpb.Struct{
		Fields: map[string]*structpb.Value{"key": structpb.NewStringValue("value"), "count": structpb.NewNumberValue(42)},
	})}}}},
	{id: "tck-message-response", message: "Direct message response"},
	{id: "tck-input-required", state: a2av1.TaskState_TASK_STATE_INPUT_REQUIRED, status: "More input is needed"},
	{id: "tck-reject-task", state: a2av1.TaskState_TASK_STATE_REJECTED, status: "GUARDRAIL_BLOCKED: the task is rejected, as its message id asks"},
	{id: "tck-stream-001", state: completedState, parts: agent.TextParts("Generated text content")},
	{id: "tck-stream-002", state: completedState},
	{id: "tck-stream-artifact-chunked", state: completedState, parts: append(agent.TextParts("chunk-1 "), agent.TextParts("chunk-2")...)},
	{id: "test-resubscribe-message-id", state: completedState},
	{id: "anything", state: completedState, parts: agent.TextParts("hello")},
}
