package engine

import (
	"context"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/identity"
)

// MaxBacklog is the largest number that a store counts for each kind of waiting work, so that counting
// remains cheap.
const MaxBacklog = 100_000

// Backlogs is the part of a store that counts what waits, of all owners, for operators.
// Implementations must be safe for concurrent use.
type Backlogs interface {
	// Backlog counts what waits at the moment.
	Backlog(ctx context.Context) (Backlog, error)
}

// Backlog is what waits in a store.
type Backlog struct {
	// Open are the root tasks that have not ended, by state, since the last change of their status.
	// At most MaxBacklog of them are counted.
	Open map[a2av1.TaskState]Waiting
	// Due are the runs that are due and not claimed, by owner, since they are due: the MaxBacklog of them that
	// have been due longest.
	Due map[string]Waiting
	// Claimed are the numbers of runs that are claimed, by owner.
	Claimed map[string]int64
	// Push are the push configurations with a notification that waits: those that are due and that no process
	// works on, since they are due, and those whose notification has failed and is tried again, since it first failed.
	Push Waiting
}

// Running returns the number of runs that are claimed.
func (b Backlog) Running() (n int64) {
	for _, claimed := range b.Claimed {
		n += claimed
	}
	return n
}

// Claimable returns the due runs that wait for a slot. Runs that wait because as many of their account or principal
// are claimed as shares allow are left out. shares may be nil.
func (b Backlog) Claimable(shares Shares) Waiting {
	running, due := map[string]int64{}, map[string]Waiting{}
	for owner, n := range b.Claimed {
		running[identity.AccountOf(owner)] += n
	}
	for owner, w := range b.Due {
		account := identity.AccountOf(owner)
		if shares != nil {
			w = w.atMost(shares.MaxRunningEach(account), b.Claimed[owner])
		}
		due[account] = due[account].and(w)
	}
	var all Waiting
	for account, w := range due {
		if shares != nil {
			w = w.atMost(shares.MaxRunning(account), running[account])
		}
		all = all.and(w)
	}
	return all
}

// Waiting is work that waits.
type Waiting struct {
	// Count is its number, at most MaxBacklog.
	Count int64
	// Oldest is since when the oldest has waited; the zero time if Count is 0.
	Oldest time.Time
}

// Add counts one more, which has waited since a time.
func (w *Waiting) Add(since time.Time) {
	if w.Count++; w.Count == 1 || since.Before(w.Oldest) {
		w.Oldest = since
	}
}

// and returns the work of both.
func (w Waiting) and(other Waiting) Waiting {
	if other.Count > 0 && (w.Count == 0 || other.Oldest.Before(w.Oldest)) {
		w.Oldest = other.Oldest
	}
	w.Count += other.Count
	return w
}

// atMost returns the oldest part of w that can begin while a number of runs is claimed: at most limit may be; 0
// means no limit.
func (w Waiting) atMost(limit int, claimed int64) Waiting {
	left := max(int64(limit)-claimed, 0)
	if limit <= 0 || w.Count <= left {
		return w
	}
	if left == 0 {
		return Waiting{}
	}
	return Waiting{Count: left, Oldest: w.Oldest}
}
