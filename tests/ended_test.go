package tests

import (
	"context"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// TestT_11_TasksOfEndedRights: when the last key of an owner is revoked, its unfinished tasks are paused, and
// continue when it has a key again; or they are canceled, or continue, as configured. No new work
// begins in them meanwhile. Tasks of others continue.
func TestT_11_TasksOfEndedRights(t *testing.T) {
	t.Parallel()
	for name, rights := range map[string]teamv1.EndedRights_Value{"park": teamv1.EndedRights_PARK, "cancel": teamv1.EndedRights_CANCEL, "continue": teamv1.EndedRights_CONTINUE} {
		t.Run(name, func(t *testing.T) {
			rig.EachStore(t, func(t *testing.T, at rig.Place) {
				store, _ := at.Open(t)
				c := newCrew("b")
				m := c.members(t)
				four(t, m, "workflow")
				admin := rig.Admin("acme", "root")
				target := rig.Serve(t, server.Config{Store: store, Agents: m, Settings: &teamv1.ServerSettings{Auth: &teamv1.AuthConfig{Ended: rights, ApiKeys: []*teamv1.ApiKey{admin, rig.Key("acme", "ann")}}, DefaultAgent: "team"}})
				keys := teamv1.NewKeyServiceClient(rig.Services(t, target.As("acme", "root"))[0])
				key := func() (*teamv1.Key, rig.Client) {
					made, err := keys.CreateKey(t.Context(), &teamv1.CreateKeyRequest{Name: "bob", Account: "acme"})
					if err != nil {
						t.Fatal(err)
					}
					as := target
					as.Key = made.GetSecret()
					return made.GetKey(), rig.Clients(t, as)[0]
				}
				sendNow := func(client rig.Client, id string) string {
					req := rig.Text("team", id, "x")
					req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
					return send(t, client, req).GetId()
				}
				made, bob := key()
				id, other := sendNow(bob, "m1"), sendNow(rig.Clients(t, target.As("acme", "ann"))[0], "m2")
				<-c.entered["b"]
				<-c.entered["b"]
				if _, err := keys.RevokeKey(t.Context(), &teamv1.RevokeKeyRequest{Id: made.GetId()}); err != nil {
					t.Fatal(err)
				}
				if rights != teamv1.EndedRights_CONTINUE {
					halts := teamv1.NewHaltServiceClient(rig.Services(t, target.As("acme", "root"))[0])
					becomes(t, "the owner is not halted", func() bool {
						list, err := halts.ListHalts(t.Context(), &teamv1.ListHaltsRequest{})
						return err == nil && len(list.GetHalts()) == 1 && list.GetHalts()[0].GetName() == "acme/bob"
					})
				}
				if rights == teamv1.EndedRights_CANCEL {
					becomes(t, "the task is not canceled", func() bool { return stateOf(t, store, "acme/bob", id) == a2av1.TaskState_TASK_STATE_CANCELED })
				}
				c.open("b")
				becomes(t, "the task of another owner does not end", func() bool { return stateOf(t, store, "acme/ann", other) == a2av1.TaskState_TASK_STATE_COMPLETED })
				switch rights {
				case teamv1.EndedRights_PARK:
					if calls := c.called(); calls["c"] != 1 || calls["d"] != 1 {
						t.Errorf("called for both tasks: %v", calls)
					}
					_, bob = key()
					becomes(t, "the task does not continue", func() bool { return stateOf(t, store, "acme/bob", id) == a2av1.TaskState_TASK_STATE_COMPLETED })
					if got, err := bob.Get(t.Context(), &a2av1.GetTaskRequest{Id: id}); err != nil || got.GetId() != id {
						t.Errorf("with the new key: %v, %v", got, err)
					}
				case teamv1.EndedRights_CONTINUE:
					becomes(t, "the task does not continue", func() bool { return stateOf(t, store, "acme/bob", id) == a2av1.TaskState_TASK_STATE_COMPLETED })
				case teamv1.EndedRights_CANCEL:
				}
			})
		})
	}
}

// stateOf returns the state of a task in a store.
func stateOf(t *testing.T, s server.Store, owner, id string) a2av1.TaskState {
	t.Helper()
	task, _, err := s.Task(context.WithoutCancel(t.Context()), runs.Key{Owner: owner, ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return task.GetStatus().GetState()
}

// becomes waits until something is done.
func becomes(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}
