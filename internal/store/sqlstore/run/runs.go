// Package run has the runs of root tasks: who claims them, the journals of claims, and what comes in for them. Of
// the runs that this process drives it has, in live.go, what readers see; package task reads all others.
package run

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentteams/team-server/internal/ring"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/account"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/push"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
)

// Tables are the tables of this package whose rows are copied with a store.
var Tables = []string{"request", "question", "collaboration_slot", "task", "task_spent", "run"}

// deleteRun are the statements that delete a run, $1, and all that belongs to it.
var deleteRun = slices.Concat(record.DeleteRun, account.DeleteRun, push.DeleteRun,
	[]string{`DELETE FROM request WHERE id = $1`, `DELETE FROM task_spent WHERE id = $1`, `DELETE FROM task WHERE id = $1`, `DELETE FROM run WHERE id = $1`})

// Runs are the runs of a database. It implements engine.Leases, but for Now and Ready.
type Runs struct {
	db     *db.DB
	pushes *push.Pushes
	space  *space
	rings  ring.Group
	// insertEvents are the statements of the function of this name, for this database.
	insertEvents [maxRows]string
	// stale reports whether recorded claims may belong to a process that has exited. No run is
	// claimed before these are released.
	stale atomic.Bool

	mu       sync.Mutex
	journals map[string]*journal  // open claims of this process, by root; guarded by mu
	ended    map[string]*journal  // of runs that have ended while they were read, see keep; guarded by mu
	replicas map[string]time.Time // last heartbeats of this process's replicas; guarded by mu
	unsure   time.Time            // until then reclaim looks for lost claims; guarded by mu
	lost     map[string]bool      // replicas whose lease has expired and that are logged; guarded by mu
	// arrivals are the roots for which an input may have come since the current claim began. It is nil while no claim
	// is in progress; guarded by mu.
	arrivals map[string]bool

	claiming sync.Mutex // held from a claim until its runs are adopted; acquired before mu
}

// New returns the runs of a database, and begins to receive the changes of other replicas.
func New(d *db.DB, pushes *push.Pushes) *Runs {
	s := &Runs{
		db: d, pushes: pushes, space: newSpace(), insertEvents: insertEvents(d.Binary),
		journals: map[string]*journal{}, ended: map[string]*journal{}, replicas: map[string]time.Time{}, lost: map[string]bool{},
	}
	s.stale.Store(d.Single)
	d.Listen(s)
	return s
}

// Stale reports whether recorded claims may belong to a process that has exited, see AdoptOrphans.
func (s *Runs) Stale() bool { return s.stale.Load() }

// journal returns the open claim of a root, nil without one.
func (s *Runs) journal(root string) *journal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journals[root]
}

// keep stores the journal of an ended run for the readers of its root. It returns false if the root has no readers.
func (s *Runs) keep(j *journal) bool {
	s.mu.Lock()
	s.ended[j.root] = j
	s.mu.Unlock()
	if s.db.Watched(j.root) {
		return true
	}
	s.drop(j.root) // or it was dropped by the last reader
	return false
}

// drop forgets the journal of an ended run, and returns it.
func (s *Runs) drop(root string) *journal {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.ended[root]
	delete(s.ended, root)
	return j
}

// WatchRoot returns a channel that receives when a root may have new events. The root may be created later; its creation
// sends nothing.
func (s *Runs) WatchRoot(root string) (wake <-chan struct{}, stop func()) {
	wake, leave := s.db.Watch(root)
	return wake, func() {
		if leave(); s.db.Watched(root) {
			return
		}
		if j := s.drop(root); j != nil {
			j.dropRing()
		}
	}
}

// Deliver implements db.Drivers.
func (s *Runs) Deliver(root string) {
	s.mu.Lock()
	j := s.journals[root]
	if s.arrivals != nil {
		s.arrivals[root] = true
	}
	s.mu.Unlock()
	if j != nil {
		j.arrived()
		store.Poke(j.wake)
	}
}

// Driven implements db.Drivers.
func (s *Runs) Driven() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]string, 0, len(s.journals))
	for root := range s.journals {
		list = append(list, root)
	}
	return list
}

// Poll looks for changes every db.PollEvery until ctx ends, in case notifications were lost.
func (s *Runs) Poll(ctx context.Context) {
	tick := time.NewTicker(db.PollEvery)
	defer tick.Stop()
	seen := map[string]mark{}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now, err := s.look(ctx, seen); err == nil { // after a failure, the next tick tries again
			seen = now
		}
	}
}

// look wakes the readers of roots that have changed since the last call, and returns
// the state that it saw.
func (s *Runs) look(ctx context.Context, seen map[string]mark) (map[string]mark, error) {
	now, err := s.marks(ctx, s.db.Concerned())
	if err != nil {
		return nil, err
	}
	for root, m := range now {
		if j := s.journal(root); j != nil && j.epoch < m.epoch {
			j.lose()
		}
		if was, known := seen[root]; !known || was != m {
			s.db.Ring(m.owner)
			s.db.Arrived(root)
		}
	}
	return now, nil
}

// mark is a part of a run's row that changes with each new event, input or claim.
type mark struct {
	owner              string // never changes
	seq, inputs, epoch int64
}

// pollFor is the timeout of one look.
const pollFor = 5 * time.Second

// selectMarks selects the marks of roots.
const selectMarks = `SELECT id, owner, seq, inputs, epoch FROM run WHERE id = ANY($1)`

// marks returns the marks of roots, without unknown ones.
func (s *Runs) marks(ctx context.Context, roots []string) (map[string]mark, error) {
	marks := map[string]mark{}
	if len(roots) == 0 {
		return marks, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pollFor)
	defer cancel()
	err := db.Each(ctx, s.db.Reader(), func() { clear(marks) }, func(r *sql.Rows) error {
		var root string
		var m mark
		if err := r.Scan(&root, &m.owner, &m.seq, &m.inputs, &m.epoch); err != nil {
			return err
		}
		marks[root] = m
		return nil
	}, selectMarks, roots)
	return marks, err
}
