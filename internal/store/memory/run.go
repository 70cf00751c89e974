package memory

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	fold "github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// run is one root task: its journal, its inbox, its claim and its watchers.
type run struct {
	root, owner, agent, context string // never change
	maker                       string // account that has made the agent by the API, or ""; never changes

	mu       sync.Mutex
	record   record                  // guarded by mu
	bytes    int64                   // encoded size of the events as they were appended; guarded by mu
	last     time.Time               // time of the last event; guarded by mu
	times    []timestamppb.Timestamp // allocated in advance for the next events; guarded by mu
	fold     Fold                    // fold of the root; guarded by mu
	book     *cost.Book              // guarded by mu
	costs    []cost.Sum              // that Store.costs does not have yet; guarded by mu
	ended    bool                    // the end of the root is recorded; guarded by mu
	asking   fold.Questions          // guarded by mu
	inbox    []*teamv1.Inbound
	inboxN   int64                      // number of the last inbox row; guarded by mu, like inbox
	watchers map[chan struct{}]struct{} // guarded by mu
	epoch    int64                      // epoch of the last claim; guarded by mu
	claimed  bool                       // there is a claim; guarded by mu
	driven   atomic.Bool                // the value of claimed
	wake     chan struct{}              // of the last claim, see journal.Wake; guarded by mu
	parked   string                     // the reason, see Suspend; empty if not parked; guarded by mu
	halted   bool                       // it is parked because a halt has paused it; guarded by mu
	pushed   bool                       // there has been a push configuration; guarded by mu

	listedAsking bool // the run is in Store.asking; guarded by mu

	briefed  bool         // begun with a brief; never changes
	entry    *entry       // in the owner's index; written under mu and Store.mu
	requests []requestKey // guarded by Store.mu
	collab   bool         // counts as a collaboration until it ends; never changes
	tied     *definition  // its definition; nil if unknown; guarded by Store.mu, like what it holds

	dueAt time.Time // guarded by dueQueue.mu
	place int       // position in the queue, starting at 1; 0 if not queued; guarded by dueQueue.mu
}

// newRun returns a run with its first event.
func (s *Store) newRun(n a2a.New, now time.Time) *run {
	acc := n.Accepted
	r := &run{
		root: acc.GetTaskId(), owner: n.Owner, agent: acc.GetAgent(), maker: acc.GetPins().GetAccounts()[acc.GetAgent()], context: acc.GetMessage().GetContextId(),
		fold: s.fold(acc.GetTaskId(), ""), book: cost.NewBook(a2a.AccountOf(n.Owner)), briefed: acc.GetCollaboration() != nil,
	}
	r.add(r.stamp(now), &teamv1.Event{Agent: acc.GetAgent(), Kind: &teamv1.Event_Accepted{Accepted: acc}})
	r.last, r.bytes = now, int64(proto.Size(acc))
	return r
}

// key returns the key of the agent of the run; see agent.KeyOf.
func (r *run) key() string { return agent.KeyOf(r.maker, r.agent) }

// extend appends events that were admitted. size is their encoded size. The caller must hold mu.
func (r *run) extend(now time.Time, events []*teamv1.Event, size int64) {
	if now.Before(r.last) {
		now = r.last
	}
	at := r.stamp(now)
	for _, ev := range events {
		if taskstate.EndsRun(ev) {
			r.closeInbox(at, ev)
		}
		r.add(at, ev)
	}
	r.last = now
	r.bytes += size
	for w := range r.watchers {
		store.Poke(w)
	}
}

// stamp returns now as a timestamp for events. The caller must hold mu.
func (r *run) stamp(now time.Time) *timestamppb.Timestamp {
	if len(r.times) == 0 {
		r.times = make([]timestamppb.Timestamp, 16)
	}
	at := &r.times[0]
	r.times = r.times[1:]
	at.Seconds, at.Nanos = now.Unix(), int32(now.Nanosecond()) //nolint:gosec // less than 1e9
	return at
}

// add appends an event. The caller must hold mu.
func (r *run) add(at *timestamppb.Timestamp, ev *teamv1.Event) {
	ev.Seq, ev.Time = r.record.len()+1, at
	r.record.events = append(r.record.events, ev)
	r.fold.Apply(ev)
	r.asking.Apply(ev)
	if taskstate.EndsRun(ev) {
		r.ended, r.costs = true, append(r.costs, r.book.End(ev)...)
	} else {
		r.costs = append(r.costs, r.book.Apply(ev)...)
	}
	if n := store.Consumes(ev); n > 0 {
		r.inbox = slices.DeleteFunc(r.inbox, func(in *teamv1.Inbound) bool { return in.GetN() == n })
	}
}

// closeInbox empties the inbox before the end of the run. It records the messages that were
// acknowledged but not recorded yet as too late, and discards the commands, which can have no
// effect any more.
func (r *run) closeInbox(at *timestamppb.Timestamp, end *teamv1.Event) {
	rows := r.inbox
	r.inbox = nil
	for _, in := range rows {
		if late := store.TooLate(in, end); late != nil {
			r.add(at, late)
		}
	}
}

// leave adds a row to the inbox and returns its number. The caller must hold mu.
func (r *run) leave(in *teamv1.Inbound) int64 {
	r.inboxN++
	in.N = r.inboxN
	r.inbox = append(r.inbox, in)
	return in.N
}

// unanswered rejects a second answer to a question. The caller must hold mu.
func (r *run) unanswered(in *teamv1.Inbound) error {
	if in.GetAnswered() == nil {
		return nil
	}
	if err := store.Unanswered(in, r.inbox); err != nil {
		return err
	}
	for _, ev := range slices.Backward(r.record.all()) {
		if decides, err := store.Decides(ev, in.GetAnswered().GetQuestion()); decides {
			return err
		}
	}
	return nil
}

// snapshot returns the recorded events, none while the task is invisible. If task is true, it also
// returns the root's task.
func (r *run) snapshot(task bool) (*a2av1.Task, record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fold.Visible() {
		return nil, record{}
	}
	if !task {
		return nil, r.record
	}
	return a2a.Parked(r.fold.Task(), r.parked), r.record
}

// recorded returns the recorded events.
func (r *run) recorded() record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record
}

// watch returns a channel that receives when the run may have new events, until stop is called.
func (r *run) watch() (wake <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watchers == nil {
		r.watchers = map[chan struct{}]struct{}{}
	}
	r.watchers[c] = struct{}{}
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, c)
	}
}
