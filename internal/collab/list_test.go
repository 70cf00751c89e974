package collab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/faulty"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
)

// R-001-32: a list says that the store is not available, and is not taken for an
// empty one.
func TestR_001_32_ListWithoutAStore(t *testing.T) {
	st := faulty.New(memstore.Open(t))
	agents := manager.New(manager.Config{})
	if err := agents.Register("crew", &agent.Func{ID: "crew"}); err != nil {
		t.Fatal(err)
	}
	h := a2a.NewHandler(a2a.Config{Agents: agents, Store: st, Overview: st})
	ctx := identity.WithCaller(t.Context(), identity.Caller{Account: "acme", Principal: "ann"})
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

// countedStore counts the runs that are loaded: marks, and journals by their run.
type countedStore struct {
	*sqlstore.Store
	marks    int
	journals map[string]bool
}

func (s *countedStore) Runs(ctx context.Context, owner string, f runs.RunFilter) ([]runs.RunMark, error) {
	marks, err := s.Store.Runs(ctx, owner, f)
	s.marks += len(marks)
	return marks, err
}

func (s *countedStore) Events(ctx context.Context, k runs.Key, after int64, most int) ([]runs.Record, error) {
	s.journals[k.ID] = true
	return s.Store.Events(ctx, k, after, most)
}

// R-001-32: a page of 10 of 500 collaborations reads about as many runs, wherever it
// begins, also where the caller has many other tasks.
func TestR_001_32_APageReadsWhatItShows(t *testing.T) {
	st := &countedStore{Store: memstore.Open(t)}
	agents := manager.New(manager.Config{})
	if err := agents.Register("crew", &agent.Func{ID: "crew"}); err != nil {
		t.Fatal(err)
	}
	h := a2a.NewHandler(a2a.Config{Agents: agents, Store: st, Overview: st})
	ctx := identity.WithCaller(t.Context(), identity.Caller{Account: "acme", Principal: "ann"})
	var want []string
	for i := range 1000 { // every second one is a plain task
		var brief *teamv1.Brief
		id := fmt.Sprintf("01900000-0000-7000-8000-%012x", i)
		if i%2 == 0 {
			brief = &teamv1.Brief{TaskDescription: "do it"}
			want = append([]string{id}, want...)
		}
		accepted := &teamv1.Accepted{TaskId: id, Agent: "crew", Owner: "acme/ann", Message: agent.UserMessage(id, "do it"), Collaboration: brief}
		if _, _, err := st.Create(ctx, runs.New{Owner: "acme/ann", Accepted: accepted}); err != nil {
			t.Fatal(err)
		}
	}
	s := New(Config{Handler: h})
	var got []string
	for token := ""; ; {
		st.marks, st.journals = 0, map[string]bool{}
		list, err := s.ListCollaborations(ctx, &teamv1.ListCollaborationsRequest{PageSize: 10, PageToken: token})
		if err != nil || len(list.GetCollaborations()) != 10 {
			t.Fatalf("%d collaborations, %v", len(list.GetCollaborations()), err)
		}
		if n := st.marks + len(st.journals); n > 12 {
			t.Fatalf("a page of 10 of 500 loads %d runs", n)
		}
		for _, c := range list.GetCollaborations() {
			got = append(got, c.GetCollaborationId())
		}
		if token = list.GetNextPageToken(); token == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the pages have %d collaborations, want %d in the order of their ids", len(got), len(want))
	}
}
