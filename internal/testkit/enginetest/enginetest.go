// Package enginetest tests the contract of engine.Engine. Each implementation runs these tests.
package enginetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/agent"
)

// Engines makes engines under test, and an empty store for them.
type Engines struct {
	Open func(t testing.TB) store.Store
	New  func(t testing.TB, c engine.Config) engine.Engine
}

// Run tests the engines.
func Run(t *testing.T, of Engines) {
	for name, test := range map[string]func(*testing.T, Engines){
		"a run is driven until it has ended":                once,
		"a parked run goes on at its time":                  parked,
		"an input wakes a run that waits for it":            inputs,
		"a drive that fails is tried again":                 fails,
		"a stop ends drives, and others continue the runs":  stops,
		"as many runs are driven as there are slots":        slots,
		"P11 no more runs of an account than it may have":   limits,
		"a run that becomes due while none knows is driven": unheard,
		"a front has others drive runs":                     front,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, of)
		})
	}
}

// patience bounds every wait.
const patience = 30 * time.Second

// rig is an engine that serves a store.
type rig struct {
	testing.TB
	store.Store
	engine.Engine
	drives chan runs.Claim // what is driven
	goOn   chan runs.Park  // how the drives return
	stop   func()
}

var errFails = errors.New("fails")

// serve starts an engine. Its drives return when and as the test says.
func serve(t *testing.T, of Engines, s store.Store, c engine.Config) *rig {
	t.Helper()
	r := &rig{TB: t, Store: s, drives: make(chan runs.Claim, 100), goOn: make(chan runs.Park)}
	c.Leases, c.Runs, c.Replica = s, s, uuid.NewString()
	r.Engine = of.New(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, r.drive) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// fail is the park that has a drive fail.
var fail = runs.Park{Halts: -1}

func (r *rig) drive(ctx context.Context, c runs.Claim) (runs.Park, error) {
	r.drives <- c
	select {
	case p := <-r.goOn:
		if p == fail {
			return runs.Park{}, errFails
		}
		inbound, err := c.Journal.Inbound(ctx)
		for _, in := range inbound {
			in.GetReceived().Inbound = in.GetN()
			err = errors.Join(err, c.Journal.Append(ctx, &teamv1.Event{Kind: &teamv1.Event_Received{Received: in.GetReceived()}}))
		}
		if p.Done {
			ended := &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED}
			err = errors.Join(err, c.Journal.Append(ctx, &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: ended}}))
		}
		return p, err
	case <-ctx.Done():
		return runs.Park{}, context.Cause(ctx)
	}
}

// send creates a task of an account.
func (r *rig) send(account string) string {
	r.Helper()
	id := uuid.NewString()
	n := runs.New{Owner: account + "/ann", MessageID: id, Accepted: &teamv1.Accepted{TaskId: id, Agent: "a", Message: agent.UserMessage(id, "do it")}}
	if _, _, err := r.Create(r.Context(), n); err != nil {
		r.Fatal(err)
	}
	return id
}

// put puts a message into the inbox of a task.
func (r *rig) put(account, id string) {
	r.Helper()
	in := &teamv1.Inbound{Key: uuid.NewString(), Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage(uuid.NewString(), "more")}}}
	if _, _, err := r.Put(r.Context(), runs.Key{Owner: account + "/ann", ID: id}, in, nil, nil); err != nil {
		r.Fatal(err)
	}
}

// driven waits until a run is driven.
func (r *rig) driven() runs.Claim {
	r.Helper()
	select {
	case c := <-r.drives:
		return c
	case <-time.After(patience):
		r.Fatal("nothing is driven")
		return runs.Claim{}
	}
}

// idle fails if a run is driven within a time.
func (r *rig) idle(d time.Duration) {
	r.Helper()
	select {
	case c := <-r.drives:
		r.Fatalf("%s of %s is driven under epoch %d", c.Root, c.Owner, c.Epoch)
	case <-time.After(d):
	}
}

// shortly is a time in which an engine would have driven a run.
const shortly = 300 * time.Millisecond

func once(t *testing.T, of Engines) {
	r := serve(t, of, of.Open(t), engine.Config{})
	id := r.send("acme")
	r.Wake()
	if c := r.driven(); c.Root != id || c.Epoch != 1 {
		t.Errorf("driven is %v", c)
	}
	r.goOn <- runs.Park{Done: true}
	r.Wake()
	r.idle(shortly)
}

func parked(t *testing.T, of Engines) {
	r := serve(t, of, of.Open(t), engine.Config{})
	r.send("acme")
	r.Wake()
	r.driven()
	until := r.Now().Add(2 * shortly)
	r.goOn <- runs.Park{Until: until}
	if r.driven(); r.Now().Before(until.Truncate(time.Millisecond)) {
		t.Error("driven before its time")
	}
	r.goOn <- runs.Park{Done: true}
	r.idle(2 * shortly)
}

func inputs(t *testing.T, of Engines) {
	r := serve(t, of, of.Open(t), engine.Config{})
	id := r.send("acme")
	r.Wake()
	r.driven()
	r.put("acme", id)
	r.Wake()
	r.idle(shortly)
	r.goOn <- runs.Park{}
	r.idle(shortly)
	r.put("acme", id)
	r.Wake()
	if c := r.driven(); c.Epoch != 2 {
		t.Errorf("driven %d times", c.Epoch)
	}
	r.goOn <- runs.Park{Done: true}
}

func fails(t *testing.T, of Engines) {
	r := serve(t, of, of.Open(t), engine.Config{})
	r.send("acme")
	r.Wake()
	r.driven()
	r.goOn <- fail
	if c := r.driven(); c.Epoch != 2 {
		t.Errorf("the second drive has epoch %d", c.Epoch)
	}
	r.goOn <- runs.Park{Done: true}
}

func stops(t *testing.T, of Engines) {
	s := of.Open(t)
	first := serve(t, of, s, engine.Config{})
	id := first.send("acme")
	first.Wake()
	first.driven()
	first.stop()
	second := serve(t, of, s, engine.Config{})
	if c := second.driven(); c.Root != id || c.Epoch != 2 {
		t.Errorf("driven is %v", c)
	}
	second.goOn <- runs.Park{Done: true}
}

func slots(t *testing.T, of Engines) {
	r := serve(t, of, of.Open(t), engine.Config{Slots: 2})
	for range 3 {
		r.send("acme")
		r.Wake()
	}
	r.driven()
	r.driven()
	r.idle(shortly)
	if !r.Full() {
		t.Error("not full")
	}
	r.goOn <- runs.Park{Done: true}
	r.driven()
	r.goOn <- runs.Park{Done: true}
	r.goOn <- runs.Park{Done: true}
}

// two are shares that let two runs of acme run.
type two struct{}

func (two) Weight(string) int { return 1 }
func (two) MaxRunning(account string) int {
	if account == "acme" {
		return 2
	}
	return 0
}
func (two) MaxRunningEach(string) int { return 0 }
func (two) LimitsRunning() bool       { return true }

func limits(t *testing.T, of Engines) {
	r := serve(t, of, of.Open(t), engine.Config{Shares: two{}})
	for range 5 {
		r.send("acme")
		r.Wake()
	}
	r.driven()
	r.driven()
	r.idle(shortly)
	other := r.send("other")
	r.Wake()
	if c := r.driven(); c.Root != other {
		t.Errorf("driven is a run of %s", c.Owner)
	}
	for range 3 {
		r.goOn <- runs.Park{Done: true}
	}
	for range 3 {
		r.driven()
		r.goOn <- runs.Park{Done: true}
	}
}

func front(t *testing.T, of Engines) {
	s := of.Open(t)
	if s.Lease() == 0 {
		t.Skip("the store belongs to one process")
	}
	r := serve(t, of, s, engine.Config{Front: true})
	id := r.send("acme")
	r.Wake()
	r.idle(shortly)
	worker := serve(t, of, s, engine.Config{})
	if c := worker.driven(); c.Root != id {
		t.Errorf("driven is %v", c)
	}
	worker.goOn <- runs.Park{Done: true}
	r.send("acme")
	r.Wake()
	worker.driven()
	worker.goOn <- runs.Park{Done: true}
}

func unheard(t *testing.T, of Engines) {
	s := of.Open(t)
	if s.Lease() == 0 {
		t.Skip("the store belongs to one process, which hears of everything")
	}
	r := serve(t, of, s, engine.Config{})
	id := r.send("acme")
	if c := r.driven(); c.Root != id {
		t.Errorf("driven is %v", c)
	}
	r.goOn <- runs.Park{Done: true}
}
