package collab

import (
	"context"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
)

// unaware are the teams of a replica that has heard of no deletion.
type unaware struct{ handlerTeams }

func (unaware) Ready(context.Context, string) error { return nil }
func (unaware) Entry(id string) string              { return id }

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return agent.AsError(err).Reason
}

// TestR_001_30_StartOrDelete has one replica start a collaboration while another one
// deletes its team: one of them is refused.
func TestR_001_30_StartOrDelete(t *testing.T) {
	ctx := identity.WithCaller(t.Context(), identity.Caller{Account: "acme", Principal: "ann"})
	request := &teamv1.StartCollaborationRequest{TeamId: "crew", TaskDescription: "Write about the sea.", ExpectedOutput: "A line."}
	setup := func(t *testing.T) (st *sqlstore.Store, one, other *Service, remove func(context.Context) error) {
		t.Helper()
		st = memstore.Open(t)
		version, err := st.ChangeCatalog(ctx, 0, catalog.Change{Put: []catalog.Entry{{ID: "crew", Data: []byte("x")}}})
		if err != nil {
			t.Fatal(err)
		}
		agents := manager.New(manager.Config{})
		t.Cleanup(agents.Close)
		if err := agents.Register("crew", &agent.Func{ID: "crew"}); err != nil {
			t.Fatal(err)
		}
		replica := func() *Service {
			h := a2a.NewHandler(a2a.Config{Agents: agents, Store: st, Overview: st})
			return New(Config{Handler: h, Slots: st, Teams: unaware{handlerTeams{h}}})
		}
		remove = func(ctx context.Context) error {
			_, err := st.ChangeCatalog(ctx, version, catalog.Change{Delete: []string{"crew"}})
			return err
		}
		return st, replica(), replica(), remove
	}
	t.Run("what is started first is not deleted", func(t *testing.T) {
		st, one, other, remove := setup(t)
		starts := 0
		err := one.Delete(ctx, "crew", false, func(ctx context.Context) error {
			if starts++; starts == 1 {
				if _, err := other.StartCollaboration(ctx, request); err != nil {
					t.Fatal(err)
				}
			}
			return remove(ctx)
		})
		if reasonOf(err) != agent.ReasonCollaborationInProgress {
			t.Errorf("Delete = %v, want COLLABORATION_IN_PROGRESS", err)
		}
		if snap, err := st.Catalog(ctx); err != nil || len(snap.Entries) != 1 {
			t.Errorf("the catalog is %v, %v", snap, err)
		}
	})
	t.Run("what is deleted first is not started", func(t *testing.T) {
		_, one, other, remove := setup(t)
		if err := one.Delete(ctx, "crew", false, remove); err != nil {
			t.Fatal(err)
		}
		if _, err := other.StartCollaboration(ctx, request); reasonOf(err) != agent.ReasonTeamNotFound {
			t.Errorf("StartCollaboration = %v, want TEAM_NOT_FOUND", err)
		}
	})
}
