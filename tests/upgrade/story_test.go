package upgrade

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

// patience bounds every wait for something that is to come soon.
const patience = time.Minute

// run is a run of the stores: who works, and how far it has come.
type run struct{ team, state string }

func (r run) name() string { return r.team + "/" + r.state }

// over are the states of runs that have ended when their store is left.
var over = []string{"completed", "failed", "canceled", "stopped", "dropped", "rejected", "hasty", "answered", "first", "second"}

// allRuns returns all runs of the stores, in the order in which they begin. What is under way
// when its store is left begins last.
func allRuns() (all []run) {
	teams := []string{"rules", "router", "workflow", "coordinator", "async", "swarm", "broadcast", "route", "nested", "reviewed"}
	for _, state := range []string{"completed", "failed", "canceled", "stopped", "dropped", "paused", "waiting", "running"} {
		for _, team := range teams {
			all = append(all, run{team, state})
		}
		if state == "stopped" || state == "dropped" || state == "paused" { // the run of the leader has ended
			continue
		}
		all = append(all, run{"detached", state})
		if state != "waiting" {
			all = append(all, run{"beta", state})
		}
	}
	for _, team := range []string{"rules", "router", "swarm", "route", "reviewed", "outer", "beta"} { // only beta works when they are canceled later
		all = append(all, run{team, "halted"})
	}
	return append(all, run{"quorum", "hasty"}, run{"joined", "completed"}, run{"joined", "running"}, run{"outer", "running"}, run{"workflow", "answered"}, run{"rules", "answered"}, run{"guarded", "rejected"}, run{"guarded", "completed"}, run{"guarded", "running"}, run{"minutes", "first"}, run{"minutes", "second"},
		run{"altered", "waiting"}, run{"stored", "completed"}, run{"stored", "running"}, run{"reviewed", "improving"}, run{"workflow", "parked"}, run{"workflow", "stopping"})
}

// house is a server on a store, and who calls it.
type house struct {
	*testing.T
	*whole.Server
	cast    *cast
	tasks   rig.PushClient
	collabs teamv1.CollaborationServiceClient
	teams   teamv1.TeamServiceClient
	boards  teamv1.BoardServiceClient
	monitor rig.Monitor
	chief   rig.Monitor // bob, who has the role chief
}

func open(t *testing.T, at rig.Place, c *cast) *house {
	t.Helper()
	s := c.open(t, at)
	ann := s.Target
	ann.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
	conn := rig.Services(t, ann)[0]
	monitor, chief := rig.Monitors(t, ann)[0], rig.Monitors(t, s.As("acme", "bob"))[0]
	return &house{
		T: t, Server: s, cast: c, tasks: rig.NewREST(ann), monitor: monitor, chief: chief,
		collabs: teamv1.NewCollaborationServiceClient(conn), teams: teamv1.NewTeamServiceClient(conn), boards: teamv1.NewBoardServiceClient(conn),
	}
}

// must is the answer of a call that has to work.
func must[M any](t testing.TB) func(M, error) M {
	return func(m M, err error) M {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

// furnish brings about everything that a store is to hold. What it leaves under way
// goes on until the server is stopped.
func (h *house) furnish() {
	h.Helper()
	must[*teamv1.CreateTeamResponse](h)(h.teams.CreateTeam(h.Context(), &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Yaml{Yaml: stored}}))
	h.board()
	for _, r := range allRuns() {
		h.play(r)
	}
}

// stored is a team that is not in the file.
const stored = `version: v1
teams:
  stored:
    limits: {timeout: 876000h, member_timeout: 876000h}
    workflow: {steps: [{id: find, agent: alpha}, {id: write, agent: beta}]}
`

// board puts items in several states, and messages, on a board. None is claimed when the
// store is left: no claim lasts for more than a day.
func (h *house) board() {
	h.Helper()
	for _, item := range []*teamv1.AddWorkItemRequest{
		{ItemId: "draft", Title: "Write a draft", Priority: 5},
		{ItemId: "print", Title: "Print it", DependsOn: []string{"draft"}},
		{ItemId: "sell", Title: "Sell it", DependsOn: []string{"print"}},
		{ItemId: "cover", Title: "Draw a cover", MaxRetries: 1},
		{ItemId: "poster", Title: "Draw a poster"},
	} {
		item.TeamId = "crew"
		must[*teamv1.AddWorkItemResponse](h)(h.boards.AddWorkItem(h.Context(), item))
	}
	for _, item := range []string{"draft", "cover"} {
		must[*teamv1.ClaimWorkItemResponse](h)(h.boards.ClaimWorkItem(h.Context(), &teamv1.ClaimWorkItemRequest{TeamId: "crew", ItemId: item, Agent: "alpha"}))
	}
	must[*teamv1.CompleteWorkItemResponse](h)(h.boards.CompleteWorkItem(h.Context(), &teamv1.CompleteWorkItemRequest{TeamId: "crew", ItemId: "draft", Agent: "alpha", Result: "A draft."}))
	must[*teamv1.FailWorkItemResponse](h)(h.boards.FailWorkItem(h.Context(), &teamv1.FailWorkItemRequest{TeamId: "crew", ItemId: "cover", Agent: "alpha", Error: "No paint."}))
	must[*teamv1.CancelWorkItemResponse](h)(h.boards.CancelWorkItem(h.Context(), &teamv1.CancelWorkItemRequest{TeamId: "crew", ItemId: "poster"}))
	for _, text := range []string{"Who prints?", "Who sells?"} {
		must[*teamv1.PostMessageResponse](h)(h.boards.PostMessage(h.Context(), &teamv1.PostMessageRequest{TeamId: "crew", To: "alpha", Text: text}))
	}
}

// play brings a run to where it is to be.
func (h *house) play(r run) {
	h.Helper()
	var gate *fakellm.Gate
	if slices.Contains([]string{"canceled", "stopped", "dropped", "paused", "running", "improving", "halted", "hasty", "parked", "stopping"}, r.state) {
		gate = h.cast.hold(r)
	}
	id := h.begin(r)
	if gate != nil && r.state != "hasty" { // the run does not wait for beta
		h.arrives(r.name(), gate)
	}
	if r.team == "detached" {
		id = h.detached(id)
	}
	switch r.state {
	case "completed", "failed", "rejected", "hasty", "first", "second", "third":
		h.until(id, ended)
	case "waiting":
		h.until(id, asks)
	case "answered":
		h.finish(h.get(id))
	case "canceled":
		must[*a2av1.Task](h)(h.tasks.Cancel(h.Context(), &a2av1.CancelTaskRequest{Id: id}))
	case "stopped", "dropped":
		must[*teamv1.StopCollaborationResponse](h)(h.collabs.StopCollaboration(h.Context(), &teamv1.StopCollaborationRequest{
			CollaborationId: id, ForceStop: true, SavePartial: proto.Bool(r.state == "stopped"), Reason: "enough",
		}))
	case "paused":
		must[*teamv1.PauseCollaborationResponse](h)(h.collabs.PauseCollaboration(h.Context(), &teamv1.PauseCollaborationRequest{CollaborationId: id}))
		gate.Open()
		h.follow(id, "paused", func(ev *teamv1.Event) bool { return ev.GetScope() == "" && ev.GetWaiting().GetPaused() })
	case "stopping":
		h.stopping(id)
	}
	if r.team == "detached" && slices.Contains([]string{"completed", "failed", "canceled"}, r.state) {
		h.until(h.told(id), ended)
	}
	if r.name() == "rules/running" {
		must[*a2av1.TaskPushNotificationConfig](h)(h.tasks.CreatePush(h.Context(), &a2av1.TaskPushNotificationConfig{
			TaskId: id, Id: "hook", Url: "http://127.0.0.1:1/hook", Token: "token",
			Authentication: &a2av1.AuthenticationInfo{Scheme: "Bearer", Credentials: "credentials"},
		}))
	}
}

// arrives waits until beta works in a run.
func (h *house) arrives(name string, gate *fakellm.Gate) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	if err := gate.Wait(ctx, 1); err != nil {
		h.Fatalf("%s: beta does not work: %v", name, err)
	}
}

// begin begins a run: as a collaboration where only those can be what it is to be, by
// a message where the other way is possible.
func (h *house) begin(r run) string {
	h.Helper()
	text := "Write about " + r.name() + "."
	if r.state == "answered" { // it asks like those that wait
		text += " Not about " + r.team + "/waiting."
	}
	if r.team != "beta" && slices.Contains([]string{"completed", "stopped", "dropped", "paused", "running", "improving", "stopping"}, r.state) {
		shared := must[*structpb.Struct](h)(structpb.NewStruct(map[string]any{"audience": "children"}))
		return must[*teamv1.StartCollaborationResponse](h)(h.collabs.StartCollaboration(h.Context(), &teamv1.StartCollaborationRequest{
			TeamId: r.team, TaskDescription: text, ExpectedOutput: "A line.", RequestId: strings.ReplaceAll(r.name(), "/", "-"), Context: shared,
			Constraints: &teamv1.CollaborationConstraints{MaxDuration: durationpb.New(876000 * time.Hour), ResourceLimits: map[string]int64{"max_tokens": 1_000_000}},
		})).GetCollaborationId()
	}
	req := rig.Text(r.team, strings.ReplaceAll(r.name(), "/", "-"), text)
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	if r.team == "minutes" {
		req.Message.ContextId = "talk"
	}
	return must[*a2av1.SendMessageResponse](h)(h.tasks.Send(h.Context(), req)).GetTask().GetId()
}

// stopping begins to stop a collaboration, and leaves it at that.
func (h *house) stopping(id string) {
	h.Helper()
	ctx, cancel := context.WithCancel(h.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		_, err := h.collabs.StopCollaboration(ctx, &teamv1.StopCollaborationRequest{CollaborationId: id, Reason: "enough"})
		if err == nil {
			h.Error("a stop did not wait for what is under way")
		}
	})
	h.follow(id, "being stopped", func(ev *teamv1.Event) bool { return ev.GetCommanded() != nil })
	cancel()
	asking.Wait()
}

// detached waits for the end of a run, and returns the task that it left.
func (h *house) detached(id string) (left string) {
	h.Helper()
	h.follow(id, "leaving a task", func(ev *teamv1.Event) bool {
		left = ev.GetSpawned().GetTaskId()
		return left != ""
	})
	h.until(id, ended)
	return left
}

// told returns the task in which a leader is told of the end of one that it left.
func (h *house) told(left string) (id string) {
	h.Helper()
	task := h.until(left, ended)
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	for _, err := range h.monitor.WatchTeam(ctx, "detached", "") { // it looks whenever something happens
		if err != nil {
			break
		}
		list := must[*a2av1.ListTasksResponse](h)(h.tasks.List(h.Context(), &a2av1.ListTasksRequest{ContextId: task.GetContextId()}))
		for _, other := range list.GetTasks() {
			if slices.Contains(h.get(other.GetId()).GetHistory()[0].GetReferenceTaskIds(), left) {
				return other.GetId()
			}
		}
	}
	h.Fatalf("nobody is told of the end of %s", left)
	return ""
}

func (h *house) get(id string) *a2av1.Task {
	h.Helper()
	return must[*a2av1.Task](h)(h.tasks.Get(h.Context(), &a2av1.GetTaskRequest{Id: id}))
}

// until waits until a task is as it is to be: it is looked at when something has
// happened to it.
func (h *house) until(id string, is func(*a2av1.Task) bool) *a2av1.Task {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	for _, err := range h.monitor.WatchTask(ctx, id, 0) {
		if task := h.get(id); is(task) {
			return task
		}
		if err != nil {
			break
		}
	}
	task := h.get(id)
	if !is(task) {
		h.Fatalf("the task is not as it is to be: %v", task)
	}
	return task
}

// follow waits for an event of a task.
func (h *house) follow(id, what string, is func(*teamv1.Event) bool) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	for resp, err := range h.monitor.WatchTask(ctx, id, 1) {
		if err != nil && !errors.Is(err, io.EOF) {
			h.Fatalf("%s is not %s: %v", id, what, err)
		}
		if is(resp.GetEvent().GetEvent()) {
			return
		}
	}
	h.Fatalf("%s is not %s: %v", id, what, h.get(id))
}

// ended reports whether a task has ended.
func ended(task *a2av1.Task) bool {
	switch task.GetStatus().GetState() {
	case a2av1.TaskState_TASK_STATE_COMPLETED, a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_CANCELED, a2av1.TaskState_TASK_STATE_REJECTED:
		return true
	default:
		return false
	}
}

// asks reports whether a task waits for people.
func asks(task *a2av1.Task) bool {
	return task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
}
