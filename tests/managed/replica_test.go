package managed

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// TestR_003_17_AtOnce: what was made on A is known to B from the answer on, whichever
// call asks for it first.
func TestR_003_17_AtOnce(t *testing.T) {
	t.Parallel()
	at, llm := rig.PostgreSQL(t), fakellm.New(t)
	houseA, houseB := open(t, at, base, llm), open(t, at, base, llm)
	a := apis(t, houseA.Target)[0]
	n := 0
	first := func(name string, call func(ctx context.Context, id string) error) {
		n++
		id := fmt.Sprint("new", n)
		a.create(t, fmt.Sprintf("teams: {%s: {board: true, members: [{agent: parrot}], %s}}", id, rules("parrot")))
		if err := call(t.Context(), id); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range slices.Concat(rig.Clients(t, houseB.Target), rig.ClientsV03(t, houseB.Target)) {
		first(c.Binding()+" send", func(ctx context.Context, id string) error {
			_, err := c.Send(ctx, rig.Text(id, uuid.NewString(), "x"))
			return err
		})
		first(c.Binding()+" stream", func(ctx context.Context, id string) error {
			_, err := rig.Collect(c.Stream(ctx, rig.Text(id, uuid.NewString(), "x")))
			return err
		})
	}
	for _, c := range rig.Clients(t, houseB.Target) {
		first(c.Binding()+" list", func(ctx context.Context, id string) error {
			_, err := c.List(ctx, &a2av1.ListTasksRequest{Tenant: id})
			return err
		})
	}
	first("card", func(ctx context.Context, id string) error {
		_, _, err := rig.PublicCard(ctx, houseB.Target, id)
		return err
	})
	for _, s := range rig.Services(t, houseB.Target) {
		teams, agents := teamv1.NewTeamServiceClient(s), teamv1.NewRegistryServiceClient(s)
		first(s.Binding()+" GetTeam", func(ctx context.Context, id string) error {
			_, err := teams.GetTeam(ctx, &teamv1.GetTeamRequest{TeamId: id})
			return err
		})
		first(s.Binding()+" GetTeamStatus", func(ctx context.Context, id string) error {
			_, err := teams.GetTeamStatus(ctx, &teamv1.GetTeamStatusRequest{TeamId: id})
			return err
		})
		first(s.Binding()+" GetAgent", func(ctx context.Context, id string) error {
			_, err := agents.GetAgent(ctx, &teamv1.GetAgentRequest{AgentId: id})
			return err
		})
		first(s.Binding()+" StartCollaboration", func(ctx context.Context, id string) error {
			_, err := teamv1.NewCollaborationServiceClient(s).StartCollaboration(ctx, &teamv1.StartCollaborationRequest{
				TeamId: id, TaskDescription: "Say something.", ExpectedOutput: "a word",
			})
			return err
		})
		first(s.Binding()+" AddWorkItem", func(ctx context.Context, id string) error {
			_, err := teamv1.NewBoardServiceClient(s).AddWorkItem(ctx, &teamv1.AddWorkItemRequest{TeamId: id, Title: "x"})
			return err
		})
	}
	first("Info", func(ctx context.Context, id string) error {
		_, err := teamv1.NewAgentServiceClient(rig.Services(t, houseB.Target)[0]).Info(ctx, &teamv1.InfoRequest{AgentId: id})
		return err
	})
	first("WatchTeam", func(ctx context.Context, id string) error {
		for _, err := range rig.Monitors(t, houseB.Target)[0].WatchTeam(ctx, id, "") {
			return err
		}
		return nil
	})
	houseB.quiet(t)
}

// quiet checks that ids that are not there are answered as that, many at once.
func (h *house) quiet(t *testing.T) {
	t.Helper()
	c := h.client(t)
	var asking sync.WaitGroup
	for i := range 50 {
		asking.Go(func() {
			_, err := c.Send(t.Context(), rig.Text(fmt.Sprint("nobody", i), uuid.NewString(), "x"))
			fault(t, err, "NotFound", "AGENT_NOT_FOUND")
		})
	}
	asking.Wait()
}
