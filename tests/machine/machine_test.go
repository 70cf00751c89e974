// Package machine drives a server with random actions, the same ones over every
// binding, and compares what each of them sees with a model.
package machine

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/faulty"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

// sequences is how many are run on each store; -rapid.checks sets another number
// for all of them.
var sequences = map[string]int{"memory": 60, "sqlite": 15, "postgres": 10}

// least is how many actions a sequence has at least.
const least = 30

// patience is how long anything takes at most.
const patience = 30 * time.Second

// TestP7_StateMachine: whatever is asked, in whatever order, over whatever
// binding, every task is what the model says.
func TestP7_StateMachine(t *testing.T) {
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		sample.Checks(t, sequences[at.Name])
		var n, acts atomic.Int64
		rapid.Check(t, func(rt *rapid.T) {
			s := newSequence(t, rt, at, n.Add(1), "grpc", "rest", "jsonrpc")
			defer s.end()
			for range rapid.IntRange(least, least+10).Draw(rt, "actions") {
				s.act()
			}
			s.last()
			acts.Add(int64(s.acts))
		})
		t.Logf("%d sequences, %d actions, each over 3 bindings", n.Load(), acts.Load())
	})
}

// sequence is one run of actions, the same in every world.
type sequence struct {
	*rapid.T
	t      *testing.T
	ctx    context.Context // of what is done in one world
	cancel func()

	at     rig.Place
	store  *faulty.Store
	config server.Config
	gate   *gate
	close  func() // of the store
	stop   func() // of the server

	worlds []*world
	owners []*owner
	tasks  []*task
	texts  int
	acts   int
}

// newSequence serves on a store, with owners that have nothing yet, in a world for
// each binding.
func newSequence(t *testing.T, rt *rapid.T, at rig.Place, n int64, bindings ...string) *sequence {
	s := &sequence{T: rt, t: t, at: at, owners: []*owner{{name: "ann"}, {name: "bob"}}, cancel: func() {}}
	s.config.Agents, s.gate = cast(t)
	var keys []*teamv1.ApiKey
	for _, b := range bindings {
		w := &world{binding: b, account: fmt.Sprint(b, n)}
		if b == anyBinding {
			w.seed = rapid.Uint64().Draw(rt, "bindings")
		}
		s.worlds = append(s.worlds, w)
		for _, o := range s.owners {
			keys = append(keys, rig.Key(w.account, o.name))
		}
	}
	s.config.Settings = rig.Keys(keys...)
	s.start()
	return s
}

// start serves.
func (s *sequence) start() {
	inner, done := s.at.Open(s.t)
	s.store, s.close = faulty.New(inner), done
	s.config.Store = s.store
	var target rig.Target
	target, s.stop = rig.Start(s.t, s.config)
	for _, w := range s.worlds {
		if err := w.connect(target, s.owners); err != nil {
			s.Fatalf("%v", err)
		}
	}
}

// end stops serving.
func (s *sequence) end() {
	for _, w := range s.worlds {
		w.disconnect()
	}
	s.stop()
	s.close()
	s.cancel()
}

// fresh bounds what is done next.
func (s *sequence) fresh() {
	s.cancel()
	s.ctx, s.cancel = context.WithTimeout(context.Background(), patience)
}

// each does the same in every world, which must mean the same.
func (s *sequence) each(what string, do func(w *world) string) string {
	s.Helper()
	var first string
	for i, w := range s.worlds {
		s.fresh()
		got := do(w)
		if i == 0 {
			first = got
		}
		if got != first {
			s.Fatalf("%s: over %s\n\t%s\nover %s\n\t%s", what, s.worlds[0].binding, first, w.binding, got)
		}
	}
	return first
}

// settled waits until a task is as the model says, and compares what it means.
func (s *sequence) settled(t *task) {
	s.Helper()
	s.each(fmt.Sprint("get ", t), func(w *world) string {
		got, err := w.settle(s.ctx, t)
		if err != nil {
			s.Fatalf("%s: %v", w.binding, err)
		}
		text, err := w.meaning(got)
		if err != nil {
			s.Fatalf("%s: %v", w.binding, err)
		}
		return text
	})
}

// last ends what is open, and reads every journal: the sequence grows by one
// from event to event, and there is one end.
func (s *sequence) last() {
	for _, t := range s.tasks {
		if !t.terminal() {
			s.cancelTask(t)
		}
	}
	for _, w := range s.worlds {
		for _, o := range s.owners {
			s.list(w, o, filter{})
		}
		s.fresh()
		for _, t := range s.tasks {
			s.journal(runs.Key{Owner: w.account + "/" + t.owner.name, ID: w.ids[t.n]})
		}
	}
}

func (s *sequence) journal(k runs.Key) {
	var ends []int64
	var seq int64
	for {
		page, err := s.store.Events(s.ctx, k, seq, 50)
		if err != nil {
			s.Fatalf("events of %v: %v", k, err)
		}
		for _, rec := range page {
			if rec.Seq != seq+1 || rec.Event.GetSeq() != rec.Seq {
				s.Fatalf("journal of %v: %d comes after %d", k, rec.Seq, seq)
			}
			seq = rec.Seq
			if rec.Event.GetEnded() != nil && rec.Event.GetScope() == "" {
				ends = append(ends, seq)
			}
		}
		if len(page) == 0 {
			break
		}
	}
	if !slices.Equal(ends, []int64{seq}) {
		s.Fatalf("journal of %v: %d events, ends at %v", k, seq, ends)
	}
}

// id is the id of a task in a world, or of one below it.
func (w *world) id(t *task, child string) string {
	root, scope := w.ids[t.n], ""
	if child != "" {
		scope = child[1:]
	}
	return agent.ChildTask(root, scope)
}
