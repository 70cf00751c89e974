package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/transcript"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// roots are the tasks of a store that no other is the root of, by name: a run's own;
// with /left that of work that its leader did not wait for; with /told that in which the
// leader was told of its end.
func (h *house) roots() map[string]*a2av1.Task {
	h.Helper()
	byID := map[string]*a2av1.Task{}
	req := &a2av1.ListTasksRequest{PageSize: proto.Int32(100)}
	for {
		page := must[*a2av1.ListTasksResponse](h)(h.tasks.List(h.Context(), req))
		for _, task := range page.GetTasks() {
			byID[task.GetId()] = h.get(task.GetId())
		}
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	roots := map[string]*a2av1.Task{}
	for _, task := range byID {
		first, after := task, []string{"", "/left", "/told"}
		for before := byID[referred(first)]; before != nil; before = byID[referred(first)] {
			first, after = before, after[1:]
		}
		roots[runName.FindString(agent.Text(first.GetHistory()[0]))+after[0]] = task
	}
	return roots
}

// referred is the task that one follows from.
func referred(task *a2av1.Task) string {
	return strings.Join(task.GetHistory()[0].GetReferenceTaskIds(), " ")
}

// view is something that a server shows, as JSON has it.
type view = any

// viewOf is an answer, or the reason of its error.
func viewOf(t testing.TB, m proto.Message, err error) view {
	t.Helper()
	if err != nil {
		return rig.Fault(err).Reason
	}
	var v view
	if err := json.Unmarshal(must[[]byte](t)(wire.Marshal(m)), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// task is all that is shown of a task, and of the tasks below it.
func (h *house) task(id string) map[string]view {
	h.Helper()
	ctx := h.Context()
	trace, err := h.monitor.Trace(ctx, id)
	v := map[string]view{"trace": viewOf(h, trace, err)}
	tasks := map[string]view{}
	for _, id := range append([]string{id}, delegations(trace.GetStep())...) {
		task, err := h.tasks.Get(ctx, &a2av1.GetTaskRequest{Id: id})
		tasks[id] = viewOf(h, task, err)
	}
	v["tasks"] = tasks
	status, err := h.collabs.GetCollaborationStatus(ctx, &teamv1.GetCollaborationStatusRequest{CollaborationId: id, IncludeDetails: true})
	v["status"] = viewOf(h, status, err)
	if err == nil && ended(h.get(id)) {
		results, err := h.collabs.StopCollaboration(ctx, &teamv1.StopCollaborationRequest{CollaborationId: id})
		v["results"] = viewOf(h, results, err)
	}
	v["transcript"] = h.transcript(id, trace.GetSeq())
	return v
}

// delegations are the tasks of the work below a step.
func delegations(s *teamv1.TraceStep) (ids []string) {
	for _, below := range s.GetSteps() {
		switch below.GetKind() {
		case teamv1.Step_KIND_DELEGATE, teamv1.Step_KIND_STEP, teamv1.Step_KIND_TRANSFER:
			ids = append(ids, below.GetId())
		default:
		}
		ids = append(ids, delegations(below)...)
	}
	return ids
}

// transcript is what the command line tells of a task, up to an event.
func (h *house) transcript(id string, last int64) view {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	var talk strings.Builder
	told := &transcript.Printer{Talk: &talk, Zone: time.UTC}
	for resp, err := range h.monitor.WatchTask(ctx, id, 1) {
		if err != nil {
			h.Fatalf("the events of %s: %v", id, err)
		}
		if ev := resp.GetEvent(); ev != nil {
			told.Event(id, ev.GetEvent())
		}
		if resp.GetSeq() >= last {
			break
		}
	}
	lines := []any{}
	for line := range strings.Lines(talk.String() + told.Summary()) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines
}

// rest is what is shown of a store beside its tasks.
func (h *house) rest(roots map[string]*a2av1.Task) map[string]view {
	h.Helper()
	ctx := h.Context()
	v := map[string]view{}
	for state := range a2av1.TaskState_name {
		list, err := h.tasks.List(ctx, &a2av1.ListTasksRequest{Status: a2av1.TaskState(state), PageSize: proto.Int32(100)})
		ids := []any{}
		for _, task := range list.GetTasks() {
			ids = append(ids, task.GetId())
		}
		if v["tasks "+a2av1.TaskState(state).String()] = ids; err != nil {
			h.Error(err)
		}
	}
	questions, err := h.chief.Questions(ctx, &teamv1.ListQuestionsRequest{PageSize: 100})
	v["questions of a role"] = viewOf(h, questions, err)
	collabs, err := h.collabs.ListCollaborations(ctx, &teamv1.ListCollaborationsRequest{TeamId: "workflow"})
	v["collaborations"] = viewOf(h, collabs, err)
	push, err := h.tasks.ListPushes(ctx, &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: roots["rules/running"].GetId()})
	v["receivers"] = viewOf(h, push, err)
	team, err := h.teams.GetTeam(ctx, &teamv1.GetTeamRequest{TeamId: "stored"})
	v["stored team"] = viewOf(h, team, err)
	items, err := h.boards.ListWorkItems(ctx, &teamv1.ListWorkItemsRequest{TeamId: "crew"})
	v["board"] = viewOf(h, items, err)
	messages, err := h.boards.ListMessages(ctx, &teamv1.ListMessagesRequest{TeamId: "crew", Reader: "alpha"})
	v["messages"] = viewOf(h, messages, err)
	for _, id := range []string{"workflow", "swarm", "detached"} {
		v["team "+id] = h.snapshot(id)
	}
	return v
}

// snapshot is how the monitor shows a team.
func (h *house) snapshot(id string) view {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	for resp, err := range h.monitor.WatchTeam(ctx, id, "") {
		if s := resp.GetSnapshot(); s != nil {
			s.Time = nil // when it was asked for
		}
		return viewOf(h, resp.GetSnapshot(), err)
	}
	h.Fatalf("%s is not shown", id)
	return nil
}

// check compares what is shown with a file, which may be compressed, or writes the file.
func check(t *testing.T, file string, got map[string]view, write bool) {
	t.Helper()
	if write {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		if err := e.Encode(got); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, ".gz") {
			pack(t, file, b.Bytes())
		} else if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	var b []byte
	if strings.HasSuffix(file, ".gz") {
		b = unpack(t, file)
	} else {
		b = must[[]byte](t)(os.ReadFile(file))
	}
	var want map[string]view
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	got = plain(t, got)
	all := maps.Clone(want)
	maps.Copy(all, got)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if diff := cmp.Diff(want[key], got[key]); diff != "" {
			t.Errorf("%s, %s (-then +now):\n%s", file, key, diff)
		}
	}
}

// plain returns views as they are when they are read from a file.
func plain(t *testing.T, views map[string]view) (read map[string]view) {
	t.Helper()
	if err := json.Unmarshal(must[[]byte](t)(json.Marshal(views)), &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// result is what has become of a task.
func (h *house) result(task *a2av1.Task) view {
	h.Helper()
	artifacts := map[string]any{}
	for _, a := range task.GetArtifacts() {
		if a2a.RunOf(a.GetMetadata()).GetDelegationId() == "" {
			artifacts[a.GetName()] = taskID.ReplaceAllString(agent.Text(&a2av1.Message{Parts: a.GetParts()}), "ID")
		}
	}
	state := strings.TrimPrefix(task.GetStatus().GetState().String(), "TASK_STATE_")
	if reason := a2a.RunOf(task.GetMetadata()).GetError().GetReason(); reason != "" {
		state = fmt.Sprint(state, " ", reason)
	}
	v := map[string]any{"state": state, "artifacts": artifacts, "attempts": attempts(must[*teamv1.Trace](h)(h.monitor.Trace(h.Context(), task.GetId())).GetStep())}
	if r := a2a.RunOf(task.GetMetadata()).GetReceipt(); r != nil {
		v["receipt"] = viewOf(h, r, nil)
	}
	return v
}

// attempts are how often beta's model was asked below a step, for each answer.
func attempts(s *teamv1.TraceStep) []any {
	all := []any{}
	if s.GetKind() == teamv1.Step_KIND_MODEL && strings.HasSuffix("/"+s.GetPath(), "/beta") {
		all = append(all, float64(len(s.GetAttempts())))
	}
	for _, below := range s.GetSteps() {
		all = append(all, attempts(below)...)
	}
	return all
}

// taskID is the id of a task in a text.
var taskID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
