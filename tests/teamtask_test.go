package tests

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/tests/rig"
)

// bureau is a team of one that asks, one that is on another server, and one that
// tells what it does while it says its part; and a team that works until it is canceled.
func bureau(t *testing.T) (m *manager.Manager, at chan struct{}, ended *atomic.Int64) {
	t.Helper()
	far := rig.Manager(t, says("far", "maps"))
	m = rig.Manager(t,
		script(t, "asker", asking("Which city?")...),
		script(t, "writer", &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Progress{Progress: "Writing."}},
			&teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Chunks{Chunks: 3}}, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Echo{Echo: true}}),
		overA2A(t, "far", rig.Serve(t, server.Config{Agents: far}), "far", remote.BindingREST))
	add := func(id string, steps ...workflow.Step) {
		s, err := workflow.New(workflow.Config{Steps: steps})
		if err != nil {
			t.Fatal(err)
		}
		var members []team.Member
		for _, step := range steps {
			members = append(members, team.Member{Agent: step.Member, StreamInner: true})
		}
		tm, err := team.New(team.Config{ID: id, Mode: "workflow", Scheduler: s, Members: members, Registry: m, Limits: &teamv1.Limits{MaxParallel: new(int32(2))}})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Register(id, tm); err != nil {
			t.Fatal(err)
		}
	}
	add("bureau", workflow.Step{ID: "1", Member: "asker"}, workflow.Step{ID: "2", Member: "far", After: []string{"1"}},
		workflow.Step{ID: "3", Member: "writer", After: []string{"2"}})
	at, ended = make(chan struct{}, 10), &atomic.Int64{}
	for _, id := range []string{"left", "right"} {
		worker := &performer{id: id, perform: func(ctx context.Context) (*teamv1.Reply, error) {
			at <- struct{}{}
			<-ctx.Done()
			ended.Add(1)
			return nil, context.Cause(ctx)
		}}
		if err := m.Register(id, worker); err != nil {
			t.Fatal(err)
		}
	}
	add("crowd", workflow.Step{ID: "l", Member: "left"}, workflow.Step{ID: "r", Member: "right"})
	return m, at, ended
}

// TestA_23_S_61_ATeamsTask: over each binding a team is an agent like any other.
func TestA_23_S_61_ATeamsTask(t *testing.T) {
	t.Parallel()
	m, at, ended := bureau(t)
	target := rig.Serve(t, server.Config{Agents: m, Push: hasty})
	detailed := target
	detailed.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
	t.Run("A-23 a card of its own, under its own address, with the skills of its members", func(t *testing.T) {
		card, _, err := rig.PublicCard(t.Context(), target, "bureau")
		if err != nil {
			t.Fatal(err)
		}
		var skills []string
		for _, s := range card.GetSkills() {
			skills = append(skills, s.GetId())
		}
		for _, i := range card.GetSupportedInterfaces() {
			if i.GetTenant() != "bureau" && !strings.HasSuffix(strings.TrimSuffix(i.GetUrl(), "/rpc"), "/bureau") {
				t.Error(i)
			}
		}
		if !slices.Contains(skills, "maps") || paramsOf(card)["type"] != "team" {
			t.Errorf("%v, skills %v", card, skills)
		}
	})
	for i, c := range rig.Clients(t, detailed) {
		t.Run(c.Binding(), func(t *testing.T) {
			hooked := rig.NewReceiver(t)
			task := asksFirst(t, c, hooked.URL)
			t.Run("S-61 history length, list and push configurations", func(t *testing.T) { lookedAt(t, c, task, i+1) })
			answersLast(t, c, task.GetId())
			hooked.Until(t, "the end", func(list []rig.Notification) bool { return len(list) > 0 && rig.Ended(list[len(list)-1]) })
			t.Run("A-23 a cancel reaches all members", func(t *testing.T) {
				now := send(t, c, atOnce(rig.Text("crowd", "crowd-"+c.Binding(), "x")))
				<-at
				<-at // both are at work
				got, err := c.Cancel(t.Context(), &a2av1.CancelTaskRequest{Tenant: "crowd", Id: now.GetId()})
				if err != nil || got.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED || ended.Load() != int64(2*(i+1)) {
					t.Errorf("%v, %v: %d of %d members have ended", got, err, ended.Load(), 2*(i+1))
				}
			})
		})
	}
}

// asksFirst begins a task at once, and follows it to the question of a member.
func asksFirst(t *testing.T, c rig.Client, url string) *a2av1.Task {
	t.Helper()
	req := atOnce(rig.Text("bureau", "first-"+c.Binding(), "tides"))
	req.Configuration.TaskPushNotificationConfig = &a2av1.TaskPushNotificationConfig{Id: "inline", Url: url}
	now := send(t, c, req)
	if a2a.RunOf(now.GetMetadata()).GetError() != nil || now.GetId() == "" {
		t.Fatalf("S-61 at once: %v", now)
	}
	for u, err := range c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Tenant: "bureau", Id: now.GetId()}, 0) {
		state := u.GetStatusUpdate().GetStatus().GetState()
		if u.GetTask() != nil {
			state = u.GetTask().GetStatus().GetState()
		}
		if err != nil {
			t.Fatal(err)
		}
		if state == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
			break
		}
	}
	task, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Tenant: "bureau", Id: now.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	q := a2a.RunOf(task.GetMetadata()).GetQuestions()
	if len(q) != 1 || q[0].GetPath() != "bureau/asker" || !strings.HasPrefix(q[0].GetDelegationId(), task.GetId()+"~") {
		t.Errorf("A-23 the questions are %v", q)
	}
	return task
}

// lookedAt reads a team's task in every way.
func lookedAt(t *testing.T, c rig.Client, task *a2av1.Task, tasks int) {
	t.Helper()
	for n, want := range map[int32][]string{0: nil, 1: {"tides"}, 5: {"tides"}} {
		got, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: task.GetId(), HistoryLength: &n})
		if diff := cmp.Diff(want, saidBy(got.GetHistory())); err != nil || diff != "" {
			t.Errorf("a history of %d: %v %s", n, err, diff)
		}
	}
	list, err := c.List(t.Context(), &a2av1.ListTasksRequest{Tenant: "bureau"})
	if err != nil || int(list.GetTotalSize()) != tasks || list.GetTasks()[0].GetId() != task.GetId() || list.GetTasks()[0].GetArtifacts() != nil {
		t.Errorf("the list is %v, %v", list, err)
	}
	p := c.(rig.PushClient)
	made, err := p.CreatePush(t.Context(), &a2av1.TaskPushNotificationConfig{Tenant: "bureau", TaskId: task.GetId(), Id: "more", Url: "http://127.0.0.1:1"})
	if err != nil || made.GetTaskId() != task.GetId() {
		t.Errorf("%v, %v", made, err)
	}
	all, err := p.ListPushes(t.Context(), &a2av1.ListTaskPushNotificationConfigsRequest{Tenant: "bureau", TaskId: task.GetId()})
	if err != nil || len(all.GetConfigs()) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	if err := p.DeletePush(t.Context(), &a2av1.DeleteTaskPushNotificationConfigRequest{TaskId: task.GetId(), Id: "more"}); err != nil {
		t.Error(err)
	}
}

// answersLast answers the question, and follows the others to the end: each says
// where it works, and the answer comes in pieces.
func answersLast(t *testing.T, c rig.Client, id string) {
	t.Helper()
	req := rig.Text("bureau", "answer-"+c.Binding(), "Brest")
	req.Message.TaskId = id
	var updates []*a2av1.StreamResponse
	for u, err := range c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: id}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if updates = append(updates, u); len(updates) == 1 {
			send(t, c, atOnce(req)) // while it is watched
		}
	}
	paths, pieces := map[string]bool{}, 0
	for _, u := range updates {
		paths[a2a.RunOf(u.GetStatusUpdate().GetMetadata()).GetPath()] = true
		if u.GetArtifactUpdate().GetAppend() {
			pieces++
		}
	}
	for _, path := range []string{"bureau/asker", "bureau/far", "bureau/writer"} {
		if !paths[path] {
			t.Errorf("A-23 nothing is told of %s: %v", path, paths)
		}
	}
	if pieces == 0 {
		t.Error("A-23 nothing came in pieces")
	}
	task, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
	if err != nil || task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Fatalf("%v, %v", task, err)
	}
	for _, a := range task.GetArtifacts() {
		if a.GetName() == "result" && !strings.Contains(agent.Text(&a2av1.Message{Parts: a.GetParts()}), "Brest") {
			t.Errorf("A-23 the answer is %v", a)
		}
	}
}
