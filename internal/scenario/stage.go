package scenario

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/build"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
)

// account is that of the caller, who is its principal of the same name.
const account = "local"

// stage is a server without listeners that runs one scenario, with its own agents and store.
type stage struct {
	local  *server.Local
	tasks  runs.Overview
	closes []func() error // called in this order
}

// Place is where scenarios are played. The zero value is a store in memory with its own engine.
type Place struct {
	// Open returns an empty store, which the stage closes.
	Open func() (server.Store, error)
	// Engine makes what drives the runs.
	Engine func(server.EngineConfig) (server.Engine, error)
}

// newStage builds the agents of a configuration. If it fails, it closes everything that it opened.
func newStage(def *config.Config, at Place, log *zap.Logger) (*stage, error) {
	out, err := egress.New(egress.Config{})
	if err != nil {
		return nil, err
	}
	guarded, err := egress.NewGuarded(def.EgressAllow()...)
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("server.egress.allow: %w", err)
	}
	if at.Open == nil {
		at.Open = func() (server.Store, error) {
			return server.OpenStore(context.Background(), "memory:", server.StoreConfig{Log: log})
		}
	}
	kept, err := at.Open()
	if err != nil {
		out.Close()
		guarded.Close()
		return nil, err
	}
	registry := manager.New(manager.Config{Log: log})
	s := &stage{tasks: kept, closes: []func() error{func() error { registry.Close(); out.Close(); guarded.Close(); return kept.Close() }}}
	agents, err := build.Register(build.Config{Definition: def, Registry: registry, Egress: out, Guarded: guarded, Boards: kept, Log: log})
	if err == nil {
		s.closes = append([]func() error{agents.Close}, s.closes...)
		s.local, err = server.NewLocal(server.Config{Agents: registry, Store: kept, Engine: at.Engine, Version: "test", Log: log})
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stage) close() error {
	var errs []error
	for _, c := range s.closes {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// play serves tasks while act runs, and closes the stage afterwards.
func (s *stage) play(ctx context.Context, act func(ctx context.Context) error) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- s.local.Serve(serving) }()
	err := act(identity.WithCaller(ctx, identity.Caller{Account: account, Principal: account, EveryRole: true}))
	stop()
	return errors.Join(err, <-served, s.close())
}

// process sends a message to an agent and yields the events of its run with a sequence number
// greater than after, until the run has ended or waits for an answer.
func (s *stage) process(ctx context.Context, req *teamv1.ProcessRequest, after int64) iter.Seq2[*teamv1.ProcessStreamResponse, error] {
	return func(yield func(*teamv1.ProcessStreamResponse, error) bool) {
		events, err := s.local.Handler().ProcessStream(ctx, &teamv1.ProcessStreamRequest{Request: req, After: after})
		if err != nil {
			yield(nil, err)
			return
		}
		events(yield)
	}
}
