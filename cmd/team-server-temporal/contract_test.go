//go:build linux

package main_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agentteams/team-server/cmd/team-server-temporal/internal/temporal"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/enginetest"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestTemporal_Contract: the engine does what that of the stores does.
func TestTemporal_Contract(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	enginetest.Run(t, enginetest.Engines{Open: open, New: s.engine})
}

// open opens an empty store.
func open(t testing.TB) store.Store {
	opened, err := sqlstore.Open(t.Context(), pgtest.URL(t), sqlstore.Config{Lease: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return opened
}

// engine makes an engine with a task queue of the test's own.
func (s *stack) engine(t testing.TB, c engine.Config) engine.Engine {
	e, err := temporal.New(c, &teamv1.TemporalSettings{Address: s.door.address(), Namespace: s.namespace, TaskQueue: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestTemporal_BehindWithHalts: a server that has not applied the current halts drives nothing, and asks rarely.
func TestTemporal_BehindWithHalts(t *testing.T) {
	t.Parallel()
	s, kept := start(t, agents), open(t)
	const replica = "a"
	e := s.engine(t, engine.Config{Leases: kept, Runs: kept, Replica: replica})
	ctx, stop := context.WithCancel(t.Context())
	served, begun := make(chan error, 1), make(chan struct{}, 10)
	go func() {
		served <- e.Serve(ctx, func(context.Context, runs.Claim) (runs.Park, error) {
			begun <- struct{}{}
			return runs.Park{Done: true}, nil
		})
	}()
	h := &teamv1.Halt{Kind: teamv1.HaltKind_HALT_KIND_AGENT, Name: "other", Reason: "test", By: "acme/ann", At: timestamppb.Now(), Pause: true}
	if err := kept.Halt(ctx, h, nil); err != nil {
		t.Fatal(err)
	}
	id := uuid.NewString()
	n := runs.New{Owner: "acme/ann", MessageID: id, Accepted: &teamv1.Accepted{TaskId: id, Agent: "a", Message: agent.UserMessage(id, "do it")}}
	if _, _, err := kept.Create(ctx, n); err != nil {
		t.Fatal(err)
	}
	e.Wake()
	const watched = 5
	select {
	case <-begun:
		t.Error("the run was driven")
	case <-time.After(watched * time.Second):
	}
	if n := s.events(id); n > 10*watched {
		t.Errorf("the workflow has %d events after %d s", n, watched)
	}
	if err := kept.AcknowledgeHalts(ctx, replica, h.GetVersion(), nil); err != nil {
		t.Fatal(err)
	}
	<-begun
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
