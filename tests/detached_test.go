package tests

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/tests/rig"
)

// leading is a model that gives new work to member a, says so when it has begun,
// and repeats what it is told of its end.
type leading struct{}

func (leading) Name() string { return "leading" }

func (leading) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		last := req.Messages[len(req.Messages)-1]
		turn := &teamv1.Turn{Text: "lead: " + last.Text}
		if last.Role == agent.RoleUser && !strings.Contains(last.Text, "has ended") {
			turn = &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "1", Name: "delegate_to_a", Arguments: `{"task": "dig"}`}}}
		}
		yield(agent.ModelChunk{Turn: turn}, nil)
	}
}

// detaching is a team whose leader lets member a work by itself.
func detaching(t testing.TB, m *manager.Manager, wake bool) {
	t.Helper()
	list := []team.Member{{Agent: "a"}}
	s, err := leader.NewCoordinator(leader.CoordinatorConfig{Members: list, Async: true, OpenDelegations: leader.DetachOpen, Wake: wake})
	if err != nil {
		t.Fatal(err)
	}
	tm, err := team.New(team.Config{ID: "lead", Mode: "coordinator", Scheduler: s, Members: list, Registry: m, Model: leading{}, ReportErrors: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Register("lead", tm); err != nil {
		t.Fatal(err)
	}
}

// TestS_65_TheEndWakesTheLead has a leader answer while detached work goes on, the
// server restarted where the store allows it, and the work end: one run of the
// leader begins in the same conversation, or none where that is off.
func TestS_65_TheEndWakesTheLead(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		for name, wake := range map[string]bool{"R-003-03 S-65 on": true, "S-65 off": false} {
			t.Run(name, func(t *testing.T) { woken(t, place, wake) })
		}
	})
}

func woken(t *testing.T, place rig.Place, wake bool) {
	t.Helper()
	c := newCrew("a")
	begin := func() (rig.Client, func()) {
		m := rig.Manager(t, c.member("a"))
		detaching(t, m, wake)
		store, done := place.Open(t)
		target, stop := rig.Start(t, server.Config{Agents: m, Store: store})
		return rig.Clients(t, target)[0], func() { stop(); done() }
	}
	client, stop := begin()
	id := "m1" + name(wake)
	resp, err := client.Send(t.Context(), rig.Text("lead", id, "please dig"))
	if err != nil {
		t.Fatal(err)
	}
	task := resp.GetTask()
	answer := task.GetArtifacts()[0].GetParts()[0].GetText()
	ticket := strings.TrimSuffix(strings.Fields(answer)[4], ".")
	child, err := client.Get(t.Context(), &a2av1.GetTaskRequest{Id: ticket})
	if err != nil || child.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED || child.GetContextId() != task.GetContextId() {
		t.Fatalf("the ticket of %q is %v, %v", answer, child, err)
	}
	<-c.entered["a"]
	stop()
	client, stop = begin()
	defer stop()
	<-c.entered["a"] // it goes on where nothing of it was on record
	c.open("a")
	tasks := await(t, client, task.GetContextId(), wake)
	if calls := c.called()["a"]; calls != 2 {
		t.Errorf("a was called %d times, want once before the restart and once after", calls)
	}
	for _, task := range tasks {
		if task.GetId() == resp.GetTask().GetId() || task.GetId() == ticket {
			continue
		}
		got := task.GetArtifacts()[0].GetParts()[0].GetText()
		if want := "lead: The task " + ticket + " that a was given has ended: succeeded.\n\na(dig)"; got != want {
			t.Errorf("the lead was told %q, want %q", got, want)
		}
	}
}

func name(wake bool) string {
	if wake {
		return "on"
	}
	return "off"
}

// await returns the tasks of a conversation when none of them works any more: three
// with the lead's second run, two without.
func await(t *testing.T, client rig.Client, contextID string, wake bool) []*a2av1.Task {
	t.Helper()
	want := 2
	if wake {
		want = 3
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		list, err := client.List(ctx, &a2av1.ListTasksRequest{ContextId: contextID, IncludeArtifacts: new(true)})
		if err != nil {
			t.Fatalf("%d tasks never ended: %v", want, err)
		}
		done := 0
		for _, task := range list.GetTasks() {
			if task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED {
				done++
			}
		}
		if len(list.GetTasks()) > want {
			t.Fatalf("there are %d tasks, want %d", len(list.GetTasks()), want)
		}
		if done == want {
			return list.GetTasks()
		}
	}
}
