// Package board implements the boards of teams: work items with dependencies and claims,
// and messages. It computes each change on a view of the board; a Store prevents concurrent
// changes and makes them durable.
package board

import (
	"context"
	"slices"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Limits of a board.
const (
	// MaxItems is the maximum number of items. When it is reached, ended items are deleted,
	// the oldest first.
	MaxItems = 1000
	// MaxEvents is the maximum number of events; the oldest are deleted.
	MaxEvents = 10_000
)

// Key identifies a board: each account has one board for each team. Team is the key of the team, see agent.KeyOf.
type Key struct{ Account, Team string }

// Op makes a change idempotent: a second change with the same ID has no effect.
type Op struct {
	// ID is required. Different changes of a board have different IDs.
	ID string
	// Digest identifies the content of the request.
	Digest []byte
}

// View is a board during a change. The caller may modify what it returns.
type View interface {
	// Seq returns the sequence number of the last event, or 0 if there are no events.
	Seq() int64
	// Now returns the time of the store when the change began.
	Now() time.Time
	// Item returns an item, nil if it does not exist.
	Item(id string) (*teamv1.WorkItem, error)
	// Dependents returns the sorted IDs of the items that depend on an item directly.
	Dependents(id string) ([]string, error)
	// Count returns the number of items, and the ID of the ended item that was added first,
	// "" if none has ended.
	Count() (items int, ended string, err error)
	// Message returns the message of an event, nil if it does not exist.
	Message(seq int64) (*teamv1.BoardMessage, error)
}

// Change is an atomic change of a board.
type Change struct {
	// Event is appended to the events of the board. The store sets its seq.
	Event *teamv1.BoardEvent
	// Put holds the items that are new or have changed.
	Put []*teamv1.WorkItem
	// Delete is the ID of an item to delete; "" for none.
	Delete string
}

// Filter selects items.
type Filter struct {
	// State selects the items that are now in this state, see AsOf; 0 selects all.
	State teamv1.WorkItem_State
	// Assignee is the name of the holder, see Name; "" selects all.
	Assignee string
	// ByPriority sorts by priority, the highest first, then by number. Otherwise items are
	// sorted by number.
	ByPriority bool
	// AfterPriority and AfterNumber are the priority and number of the last item of the
	// previous page; 0 for the first page.
	AfterPriority int32
	AfterNumber   int64
	// Limit is the maximum number of items.
	Limit int
}

// MessageFilter selects messages.
type MessageFilter struct {
	// Reader selects the messages to this name or to everyone, and those from this name; ""
	// selects all.
	Reader string
	// Unread selects only messages to Reader from others that Reader has not acknowledged.
	Unread bool
	// After is the seq of the last message of the previous page; 0 for the first page.
	After int64
	// Limit is the maximum number of messages.
	Limit int
}

// Overview is the state of a board at one moment.
type Overview struct {
	// Seq is the sequence number of the last event that the overview includes.
	Seq int64
	// Counters are the numbers of items by state.
	Counters *teamv1.BoardCounters
	// Held are the claimed items, sorted by number.
	Held []*teamv1.WorkItem
	// Lapses is when the first claim expires; zero if nothing is claimed.
	Lapses time.Time
}

// Store stores boards; all replicas share it. A board that was never written to is empty.
// Callers may modify what a Store returns. A change of a board, by any replica, wakes the
// watchers of its account (runs.Overview.WatchAll). A Store is safe for concurrent use.
type Store interface {
	// ChangeBoard makes the change that f returns, atomically and without concurrent
	// changes of the board. The change is durable when its event is returned. f must depend
	// on nothing but the view, because it may be called more than once. If f returns an
	// error, nothing changes and ChangeBoard returns that error. If op was used before,
	// ChangeBoard returns its event without making a change, or runs.ErrReused if its digest
	// differs.
	ChangeBoard(ctx context.Context, k Key, op Op, f func(View) (*Change, error)) (*teamv1.BoardEvent, error)
	// WorkItem returns an item as it is stored: a claim that has expired is not removed, see
	// AsOf. The error is runs.ErrNotFound if there is no such item.
	WorkItem(ctx context.Context, k Key, id string) (*teamv1.WorkItem, error)
	// WorkItems returns items as they are now.
	WorkItems(ctx context.Context, k Key, f Filter) ([]*teamv1.WorkItem, error)
	// BoardEvents returns at most limit events after a sequence number, in order.
	BoardEvents(ctx context.Context, k Key, after int64, limit int) ([]*teamv1.BoardEvent, error)
	// BoardMessages returns messages in order.
	BoardMessages(ctx context.Context, k Key, f MessageFilter) ([]*teamv1.BoardMessage, error)
	// BoardOverview returns the overview of a board.
	BoardOverview(ctx context.Context, k Key) (Overview, error)
	// AckBoard records the seq up to which a reader has read, unless it is lower than the
	// recorded one, and returns the recorded one.
	AckBoard(ctx context.Context, k Key, reader string, upTo int64) (int64, error)
	// Now returns the time of the store.
	Now() time.Time
}

// AsOf returns an item as it is at a time: if its lease has expired, it is PENDING and has
// no assignee. It modifies and returns the item.
func AsOf(it *teamv1.WorkItem, now time.Time) *teamv1.WorkItem {
	if it.GetState() == teamv1.WorkItem_STATE_IN_PROGRESS && !it.GetLeaseExpires().AsTime().After(now) {
		release(it)
	}
	return it
}

// release removes the claim of an item.
func release(it *teamv1.WorkItem) {
	it.State, it.Assignee, it.Lease, it.LeaseExpires = teamv1.WorkItem_STATE_PENDING, nil, nil, nil
}

// hasEnded reports whether a state is final.
func hasEnded(s teamv1.WorkItem_State) bool { return s >= teamv1.WorkItem_STATE_COMPLETED }

// Name returns the name of an actor: the member's ID, or else the principal.
func Name(a *teamv1.BoardActor) string {
	if a.GetAgent() != "" {
		return a.GetAgent()
	}
	return a.GetPrincipal()
}

// Look returns the overview of a board with these items, which must be sorted by number and
// as of the present, see AsOf.
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

// counter returns the counter of a state.
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

// Takes reports whether the filter selects a message, ignoring After and what Reader has
// acknowledged.
func (f MessageFilter) Takes(m *teamv1.BoardMessage) bool {
	own := Name(m.GetFrom()) == f.Reader
	addressed := m.GetTo() == "" || m.GetTo() == f.Reader
	return f.Reader == "" || addressed && !own || own && !f.Unread
}

// Acknowledged returns the sorted names of the recipients who have acknowledged a message.
// read holds the seq that each reader has acknowledged.
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
