package a2a_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
)

// editions are agents whose definition changes: the current one has the
// manager, and runs are tied to the number they began with.
type editions struct {
	*manager.Manager
	now   atomic.Value // the current number, a string
	fails atomic.Int32 // so many look-ups fail for the time being
	uses  atomic.Int32

	broken atomic.Bool // nothing can be put on record

	mu  sync.Mutex
	all map[string]agent.Agent // guarded by mu
}

func (e *editions) remove(number string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.all, number)
}

func (e *editions) Pins(_ context.Context, id string) (*teamv1.Pins, error) {
	if _, err := e.Get(id); err != nil {
		return nil, err
	}
	if e.broken.Load() {
		return nil, fmt.Errorf("keep the definition: %w", runs.ErrStorage)
	}
	return &teamv1.Pins{Revisions: map[string]string{id: e.now.Load().(string)}}, nil //nolint:forcetypeassert // nothing else is stored
}

func (e *editions) Pinned(_ context.Context, id string, pins *teamv1.Pins) (agent.Agent, func(), error) {
	if e.fails.Add(-1) >= 0 {
		return nil, nil, errors.New("no connection")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.all[pins.GetRevisions()[id]]
	if a == nil {
		return nil, nil, agent.Errorf(agent.CodeInternal, agent.ReasonInterrupted, "edition %s is gone", pins.GetRevisions()[id])
	}
	e.uses.Add(1)
	return a, func() { e.uses.Add(-1) }, nil
}

// publish serves editions of one agent, each of which asks and then answers with
// its number; the last one is current.
func publish(t *testing.T, numbers ...string) (*rig, *editions) {
	t.Helper()
	r := &rig{store: memstore.Open(t), agents: manager.New(manager.Config{})}
	t.Cleanup(r.agents.Close)
	e := &editions{Manager: r.agents, all: map[string]agent.Agent{}}
	for _, n := range numbers {
		e.all[n] = script(t, "clerk", ask("Which?"), say(n+": {{answer}}"))
		e.now.Store(n)
	}
	r.add(t, e.all[numbers[len(numbers)-1]])
	eng := engine.New(engine.Config{Leases: r.store})
	runner := &drive.Runner{Agent: e.Get, Pinned: e.Pinned}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- eng.Serve(ctx, runner.Drive) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if n := e.uses.Load(); n != 0 {
			t.Errorf("%d agents are still in use", n)
		}
	})
	r.Handler = a2a.NewHandler(a2a.Config{Agents: e, Store: r.store, Wake: eng.Wake, Version: "v9"})
	return r, e
}

// interrupted checks that a task failed because it cannot go on.
func interrupted(t *testing.T, task *a2av1.Task) {
	t.Helper()
	if got := project.RunOf(wantState(t, task, failed).GetMetadata()).GetError().GetReason(); got != agent.ReasonInterrupted {
		t.Errorf("reason is %q: %v", got, task)
	}
}

func TestPinned(t *testing.T) {
	t.Run("S-50 a run goes on with the edition that it began with", func(t *testing.T) {
		r, e := publish(t, "2", "1")
		old := wantState(t, r.send(t, ann(t), message("clerk", "x")), inputRequired)
		e.now.Store("2")
		other := wantState(t, r.send(t, ann(t), message("clerk", "x")), inputRequired)
		for task, want := range map[*a2av1.Task]string{old: "1: red", other: "2: red"} {
			if got := answer(t, wantState(t, r.send(t, ann(t), reply(task.GetId(), "red")), completed)); got != want {
				t.Errorf("answer is %q, want %q", got, want)
			}
		}
		events, err := r.store.Events(t.Context(), runs.Key{Owner: "acme/ann", ID: old.GetId()}, 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, &teamv1.Pins{Code: "v9", Revisions: map[string]string{"clerk": "1"}}, events[0].Event.GetAccepted().GetPins())
	})
	t.Run("S-50 a run whose edition is gone fails at once", func(t *testing.T) {
		r, e := publish(t, "1")
		task := r.send(t, ann(t), message("clerk", "x"))
		e.remove("1")
		interrupted(t, r.send(t, ann(t), reply(task.GetId(), "red")))
	})
	t.Run("S-50 a run without pins whose agent is gone fails at once", func(t *testing.T) {
		r := start(t, script(t, "clerk", ask("Which?"), say("{{answer}}")))
		task := r.send(t, ann(t), message("clerk", "x"))
		if err := r.agents.Remove("clerk"); err != nil {
			t.Fatal(err)
		}
		interrupted(t, r.send(t, ann(t), reply(task.GetId(), "red")))
	})
	t.Run("a run whose edition is gone can be canceled", func(t *testing.T) {
		r, e := publish(t, "1")
		task := r.send(t, ann(t), message("clerk", "x"))
		e.remove("1")
		task, err := r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: task.GetId()})
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, task, canceled)
	})
	t.Run("an edition that cannot be had now is tried again", func(t *testing.T) {
		r, e := publish(t, "1")
		task := r.send(t, ann(t), message("clerk", "x"))
		e.fails.Store(1)
		if got := answer(t, wantState(t, r.send(t, ann(t), reply(task.GetId(), "red")), completed)); got != "1: red" {
			t.Errorf("answer is %q", got)
		}
	})
	t.Run("what a run is tied to must be on record before it begins", func(t *testing.T) {
		r, e := publish(t, "1")
		e.broken.Store(true)
		_, err := r.SendMessage(ann(t), message("clerk", "x"))
		wantError(t, err, agent.ReasonStoreUnavailable)
	})
}
