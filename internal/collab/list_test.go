package collab

import (
	"errors"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/faulty"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
)

// R-001-32: a list says that the store is not available, and is not taken for an
// empty one.
func TestR_001_32_ListWithoutAStore(t *testing.T) {
	st := faulty.New(store.NewMemory(store.MemoryConfig{}))
	agents := manager.New(manager.Config{})
	if err := agents.Register("crew", &agent.Func{ID: "crew"}); err != nil {
		t.Fatal(err)
	}
	h := a2a.NewHandler(a2a.Config{Agents: agents, Store: st})
	ctx := a2a.WithCaller(t.Context(), a2a.Caller{Account: "acme", Principal: "ann"})
	if _, err := h.Start(ctx, a2a.Start{Agent: "crew", Message: agent.UserMessage("m", "do it"), Brief: &teamv1.Brief{TaskDescription: "do it"}}); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Handler: h})
	list, err := s.ListCollaborations(ctx, &teamv1.ListCollaborationsRequest{})
	if err != nil || len(list.GetCollaborations()) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	st.Break(faulty.Always(faulty.Fail, faulty.Events))
	list, err = s.ListCollaborations(ctx, &teamv1.ListCollaborationsRequest{})
	var e *agent.Error
	if !errors.As(err, &e) || e.Reason != agent.ReasonStoreUnavailable {
		t.Errorf("%v, %v; want %s", list, err, agent.ReasonStoreUnavailable)
	}
}
