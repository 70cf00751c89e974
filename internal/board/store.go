// Package board is what the boards of teams do: items of work with dependencies
// and claims, and messages. A change is worked out here, on a view of the board that
// nobody else changes meanwhile; the stores put it on record.
package board

import (
	"context"
	"slices"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Limits of a board.
const (
	// MaxItems is how many items may be open, and how many are kept.
	MaxItems = 1000
	// MaxEvents is how many events are kept, the newest.
	MaxEvents = 10_000
)

// Key names a board: an account has one for each team.
type Key struct{ Account, Team string }

// Op makes a change unique: the same one again is not made twice.
type Op struct {
	// ID is unique on a board. Required.
	ID string
	// Digest is of what is asked for.
	Digest []byte
}

// View is a board while it is changed. What it returns is the caller's own.
type View interface {
	// Seq is that of the last event; 0 before the first.
	Seq() int64
	// Now is the time of the store, in milliseconds.
	Now() time.Time
	// Item returns an item; nil where there is none.
	Item(id string) (*teamv1.WorkItem, error)
	// Dependents are the ids of the items that name an item in depends_on, sorted.
	Dependents(id string) ([]string, error)
	// Count is how many items there are, and the id of the one that was added first
	// of those that have ended; empty: none has.
	Count() (items int, ended string, err error)
	// Message returns the message of an event; nil where there is none.
	Message(seq int64) (*teamv1.BoardMessage, error)
}

// Change is what becomes of a board at once.
type Change struct {
	// Event goes on record; its seq is set by the store.
	Event *teamv1.BoardEvent
	// Put are items that are new or have changed.
	Put []*teamv1.WorkItem
	// Delete is the id of an item; empty is none.
	Delete string
}

// Filter selects items.
type Filter struct {
	// State is how they stand at the time of the store, see AsOf; 0 is any.
	State teamv1.WorkItem_State
	// Assignee is the name of who holds them; empty is anybody.
	Assignee string
	// ByPriority orders them by priority, the higher first, then by number; else
	// they come by number.
	ByPriority bool
	// After is an item to begin behind, by what it is ordered by; 0 begins.
	AfterPriority int32
	AfterNumber   int64
	// Limit is how many there are at most.
	Limit int
}

// MessageFilter selects messages.
type MessageFilter struct {
	// Reader is who they are for, or who left them; empty is anybody.
	Reader string
	// Unread: only those for Reader and of others, behind what Reader has acknowledged.
	Unread bool
	// After is the seq to begin behind.
	After int64
	// Limit is how many there are at most.
	Limit int
}

// Overview is a board at one moment.
type Overview struct {
	// Seq is that of the last event that it shows.
	Seq int64
	// Counters count the items.
	Counters *teamv1.BoardCounters
	// Held are the items that somebody holds, by number.
	Held []*teamv1.WorkItem
	// Lapses is when the first claim lapses; zero: there is none.
	Lapses time.Time
}

// Store keeps boards, for all replicas. One that nothing was ever put on is empty.
// What it returns is the caller's own. Whoever waits for roots (a2a.Overview) is woken
// when a board changes, here or elsewhere. Safe for concurrent use.
type Store interface {
	// ChangeBoard makes the change that f works out, all of it or nothing; it is
	// durable when its event is returned. Nobody else changes the board meanwhile. f
	// looks at nothing but the view, and may be called more than once; its error is
	// returned as it is, and nothing is kept. An op that is on record is not done
	// again: its event is returned, or a2a.ErrReused where the digest is another one.
	ChangeBoard(ctx context.Context, k Key, op Op, f func(View) (*Change, error)) (*teamv1.BoardEvent, error)
	// WorkItem returns an item as it is kept. a2a.ErrNotFound.
	WorkItem(ctx context.Context, k Key, id string) (*teamv1.WorkItem, error)
	// WorkItems returns items as of now.
	WorkItems(ctx context.Context, k Key, f Filter) ([]*teamv1.WorkItem, error)
	// BoardEvents returns so many events behind a sequence, in their order.
	BoardEvents(ctx context.Context, k Key, after int64, limit int) ([]*teamv1.BoardEvent, error)
	// BoardMessages returns messages, in their order.
	BoardMessages(ctx context.Context, k Key, f MessageFilter) ([]*teamv1.BoardMessage, error)
	// BoardOverview returns how the board is now.
	BoardOverview(ctx context.Context, k Key) (Overview, error)
	// AckBoard notes up to which seq a reader has read, unless that is less than is
	// noted, and returns what is noted then.
	AckBoard(ctx context.Context, k Key, reader string, upTo int64) (int64, error)
	// Now is the time of the store.
	Now() time.Time
}

// AsOf is an item at some time: one whose claim has lapsed is PENDING, and nobody's.
// It changes the item and returns it.
func AsOf(it *teamv1.WorkItem, now time.Time) *teamv1.WorkItem {
	if it.GetState() == teamv1.WorkItem_STATE_IN_PROGRESS && !it.GetLeaseExpires().AsTime().After(now) {
		release(it)
	}
	return it
}

// release has nobody hold an item.
func release(it *teamv1.WorkItem) {
	it.State, it.Assignee, it.Lease, it.LeaseExpires = teamv1.WorkItem_STATE_PENDING, nil, nil, nil
}

// Ended reports whether an item in a state does not change any more.
func Ended(s teamv1.WorkItem_State) bool { return s >= teamv1.WorkItem_STATE_COMPLETED }

// Name is by what an actor is found: the member's id, else the principal.
func Name(a *teamv1.BoardActor) string {
	if a.GetAgent() != "" {
		return a.GetAgent()
	}
	return a.GetPrincipal()
}

// Look counts items and finds those that are held; they are as of some time, and
// come in the order of their numbers.
func Look(seq int64, items []*teamv1.WorkItem) Overview {
	o := Overview{Seq: seq, Counters: &teamv1.BoardCounters{}}
	for _, it := range items {
		o.Counters.Total++
		*counter(o.Counters, it.GetState())++
		if it.GetState() != teamv1.WorkItem_STATE_IN_PROGRESS {
			continue
		}
		o.Held = append(o.Held, it)
		if at := it.GetLeaseExpires().AsTime(); o.Lapses.IsZero() || at.Before(o.Lapses) {
			o.Lapses = at
		}
	}
	return o
}

// counter is where a state is counted.
func counter(c *teamv1.BoardCounters, s teamv1.WorkItem_State) *int64 {
	switch s {
	case teamv1.WorkItem_STATE_BLOCKED:
		return &c.Blocked
	case teamv1.WorkItem_STATE_IN_PROGRESS:
		return &c.InProgress
	case teamv1.WorkItem_STATE_COMPLETED:
		return &c.Completed
	case teamv1.WorkItem_STATE_FAILED:
		return &c.Failed
	case teamv1.WorkItem_STATE_CANCELED:
		return &c.Canceled
	case teamv1.WorkItem_STATE_SKIPPED:
		return &c.Skipped
	case teamv1.WorkItem_STATE_PENDING, teamv1.WorkItem_STATE_UNSPECIFIED:
	}
	return &c.Pending
}

// Takes reports whether a message is one of those that a filter selects, wherever
// it stands.
func (f MessageFilter) Takes(m *teamv1.BoardMessage) bool {
	own := Name(m.GetFrom()) == f.Reader
	addressed := m.GetTo() == "" || m.GetTo() == f.Reader
	return f.Reader == "" || addressed && !own || own && !f.Unread
}

// Acknowledged are those who have dealt with a message that is for them; read is up
// to where everybody has read.
func Acknowledged(m *teamv1.BoardMessage, read map[string]int64) []string {
	var names []string
	for name, upTo := range read {
		if upTo >= m.GetSeq() && name != Name(m.GetFrom()) && (m.GetTo() == "" || m.GetTo() == name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
