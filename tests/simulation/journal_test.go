package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/taskstate"
)

// journal is the access of a replica to a run, as a store on a network has it: appended events wait in
// the memory of the replica until they are written, and are lost with it. After its first failure it
// accepts nothing more.
type journal struct {
	runs.Journal // of the database
	db           *database
	node         *node
	claim        runs.Claim
	wake         chan struct{}
	unheard      bool // the replica was not told of the claim; guarded by gate.mu

	mu      sync.Mutex
	seq     int64 // guarded by mu, like all below
	last    time.Time
	pending []*teamv1.Event
	appends int
	commits int
	flying  bool
	ended   bool
	broken  error
	named   map[int64]bool // inputs that are recorded by events appended here
	changed chan struct{}  // closed with the next change; nil if nobody waits
}

// poke tells the owner that the inbox may have changed, if it can be reached.
func (j *journal) poke() {
	if !j.node.frozen && j.node.cut == whole {
		store.Poke(j.wake)
	}
}

func (j *journal) view() *view { return j.node.view }

func (j *journal) key(what string) string {
	return fmt.Sprint(what, " ", j.claim.Root, " epoch ", j.claim.Epoch)
}

// Load implements runs.Journal.
func (j *journal) Load(ctx context.Context) ([]*teamv1.Event, error) {
	return through(ctx, j.view(), j.key("loads"), func(ctx context.Context) ([]*teamv1.Event, error) { return j.Journal.Load(ctx) })
}

// Inbound implements runs.Journal.
func (j *journal) Inbound(ctx context.Context) ([]*teamv1.Inbound, error) {
	if err := j.held(); err != nil {
		return nil, err
	}
	rows, err := through(ctx, j.view(), j.key("reads the inbox of"), func(ctx context.Context) ([]*teamv1.Inbound, error) { return j.Journal.Inbound(ctx) })
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(rows, func(in *teamv1.Inbound) bool { return j.named[in.GetN()] }), err
}

// Wake implements runs.Journal.
func (j *journal) Wake() <-chan struct{} { return j.wake }

func (j *journal) held() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.broken
}

// Append implements runs.Journal.
func (j *journal) Append(_ context.Context, events ...*teamv1.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	if err := store.Admit(j.claim.Root, j.ended, j.seq, 0, events, 0); err != nil {
		return err
	}
	if now := time.Now(); now.After(j.last) {
		j.last = now
	}
	for _, ev := range events {
		j.seq++
		ev.Seq, ev.Time = j.seq, timestamppb.New(j.last)
		j.ended = j.ended || taskstate.EndsRun(ev)
		if n := store.Consumes(ev); n > 0 {
			j.named[n] = true
		}
	}
	j.pending = append(j.pending, events...)
	j.appends++
	j.fly()
	return nil
}

// fly has the pending events written, unless earlier ones are under way. The caller holds mu.
func (j *journal) fly() {
	if j.flying || len(j.pending) == 0 || j.broken != nil {
		return
	}
	j.flying = true
	j.node.work.Go(func() {
		var upTo int
		_, err := through(context.Background(), j.view(), j.key("writes"), func(context.Context) (struct{}, error) {
			j.mu.Lock()
			events := j.pending
			j.pending, upTo = nil, j.appends
			broken := j.broken
			j.mu.Unlock()
			if broken != nil {
				return struct{}{}, broken
			}
			return struct{}{}, j.db.write(j, events)
		})
		if err != nil {
			j.fail(err)
			return
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		j.flying, j.commits = false, upTo
		j.change()
		j.fly()
	})
}

// change wakes the commits that wait. The caller holds mu.
func (j *journal) change() {
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

// fail ends the journal.
func (j *journal) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken == nil {
		j.broken, j.pending = err, nil
	}
	j.change()
	store.Poke(j.wake)
}

// Commit implements runs.Journal.
func (j *journal) Commit(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	want := j.appends
	for {
		if j.broken != nil {
			return j.broken
		}
		if j.commits >= want {
			return nil
		}
		if j.changed == nil {
			j.changed = make(chan struct{})
		}
		changed := j.changed
		j.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		j.mu.Lock()
		if ctx.Err() != nil && j.commits < want {
			return context.Cause(ctx)
		}
	}
}
