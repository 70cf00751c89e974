package drive

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

// record is what is on record of a run: its journal, and the state that follows from it.
type record struct {
	claim    runs.Claim
	accepted *teamv1.Accepted
	run      *agent.Run
	room     *inflight.Hold          // what the run holds in memory
	cancel   context.CancelCauseFunc // cancels all work for the run
	note     func(*teamv1.Event)     // applies an event that append has recorded
	events   []*teamv1.Event         // what the agent is given: all events but the driver's own

	broken atomic.Pointer[error] // the error for which the drive ends; nil while it continues
}

// errJournal is wrapped by errors of the journal that end the drive.
var errJournal = errors.New("journal")

// largeEvent is the size from which events are recorded in turn, and recordPatience is how long they wait for that.
const (
	largeEvent     = 256 << 10
	recordPatience = 30 * time.Second
)

// event returns ev with its scope, and the root's agent as its agent.
func (r *record) event(scope string, ev *teamv1.Event) *teamv1.Event {
	ev.Scope, ev.Agent = scope, r.accepted.GetAgent()
	return ev
}

// append records events and applies them to the drive. The error is that of journalError.
func (r *record) append(ctx context.Context, events ...*teamv1.Event) error {
	if err := r.write(ctx, events); err != nil {
		return r.journalError(err)
	}
	for _, ev := range events {
		r.note(ev)
		r.grow(ev)
	}
	return nil
}

// journalError cancels all work for the run, because nothing more can be recorded, and returns the
// error that the drive reports. If the journal is full, the drive continues until open steps have
// ended.
func (r *record) journalError(err error) error {
	if errors.Is(err, runs.ErrLimit) { // open steps still get their ends
		err = agent.Errorf(agent.CodeResourceExhausted, agent.ReasonJournalLimit, "the run's journal has reached its maximum size").Because(err)
		r.cancel(err)
		return err
	}
	err = fmt.Errorf("%w of %s: %w", errJournal, r.claim.Root, err)
	r.broken.CompareAndSwap(nil, &err)
	r.cancel(agent.ErrFenced)
	return err
}

// commit waits until everything appended is durable; agents call it before an effect. If ctx ends,
// it returns the cause, which is not an error of the journal.
func (r *record) commit(ctx context.Context) error {
	err := r.claim.Journal.Commit(ctx)
	switch {
	case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		return context.Cause(ctx)
	case err != nil:
		return r.journalError(err)
	}
	return nil
}

// write appends events to the journal. Large events wait for memory, at most for recordPatience, and hold it until
// they are committed. They are recorded even if the wait fails, because they are in memory already. The error is the
// journal's.
func (r *record) write(ctx context.Context, events []*teamv1.Event) error {
	size := 0
	if r.room != nil { // nothing is counted without a budget
		for _, ev := range events {
			size += proto.Size(ev)
		}
	}
	if size < largeEvent {
		return r.claim.Journal.Append(ctx, events...)
	}
	turn, _ := r.room.Wait(ctx, inflight.Record, int64(size)*inflight.OfRecord, recordPatience)
	defer turn.Release()
	if err := r.claim.Journal.Append(ctx, events...); err != nil {
		return err
	}
	return r.claim.Journal.Commit(ctx)
}

// grow counts a recorded event that the run keeps.
func (r *record) grow(ev *teamv1.Event) {
	if r.room != nil && ev.GetDelta() == nil && ev.GetProgress() == nil {
		r.room.Grow(int64(proto.Size(ev)) * inflight.OfRun)
	}
}

// of returns something of the state of the run as it is recorded, which the journal keeps.
func of[T any](r *record, get func(*journal.Summary) T) (t T) {
	r.claim.Journal.State(func(s *journal.Summary) { t = get(s) })
	return t
}

// parkedSince returns since when the run has been parked, because it waits for people or is paused.
// It is the zero time if the run is not parked.
func (r *record) parkedSince() time.Time {
	return of(r, func(s *journal.Summary) time.Time { return s.Clock.Waits() })
}

// isParked reports whether the run is parked.
func (r *record) isParked() bool { return !r.parkedSince().IsZero() }

// started reports whether an earlier claim has started the run.
func (r *record) started() bool { return of(r, func(s *journal.Summary) bool { return s.Started }) }

// questions returns the open questions of the run, in the order they were asked.
func (r *record) questions() []*journal.Question {
	return of(r, func(s *journal.Summary) []*journal.Question { return s.Questions.Open() })
}

// isOpen reports whether the question with an id is open.
func (r *record) isOpen(question string) bool {
	return of(r, func(s *journal.Summary) bool { return s.Questions.Find(question) != nil })
}

// stopAt returns the sequence number of the event that stopped the run, 0 if it is not stopped.
func (r *record) stopAt() int64 {
	return of(r, func(s *journal.Summary) int64 { return s.StoppedAt })
}

// pausedBy returns the version of the halt that has paused the run, 0 if none has.
func (r *record) pausedBy() int64 {
	return of(r, func(s *journal.Summary) int64 { return s.PausedBy.GetVersion() })
}

// canceledByHalt returns the halt that has canceled the run, nil if none has.
func (r *record) canceledByHalt() *teamv1.Halt {
	return of(r, func(s *journal.Summary) *teamv1.Halt { return s.CanceledBy })
}

// hasWaited returns how long the run has been parked, nil if it is not parked.
func (r *record) hasWaited() *durationpb.Duration {
	since := r.parkedSince()
	if since.IsZero() {
		return nil
	}
	return durationpb.New(r.run.Now().Sub(since))
}

// inboundEvent returns the event that records an inbox row, nil for a row of unknown kind. waited
// is how long the run had been parked when it was read, nil if it was not parked.
func (r *record) inboundEvent(in *teamv1.Inbound, waited *durationpb.Duration) *teamv1.Event {
	ev := r.event(in.GetScope(), &teamv1.Event{})
	switch k := in.GetKind().(type) {
	case *teamv1.Inbound_Received:
		k.Received.Inbound = in.GetN()
		ev.Kind = &teamv1.Event_Received{Received: k.Received}
	case *teamv1.Inbound_Answered:
		k.Answered.Inbound = in.GetN()
		if !r.isOpen(k.Answered.GetQuestion()) { // it was answered or expired meanwhile
			ev.Kind = &teamv1.Event_Received{Received: &teamv1.Received{Message: k.Answered.GetMessage(), TooLate: true, Inbound: in.GetN()}}
			return ev
		}
		k.Answered.Waited = waited
		ev.Kind = &teamv1.Event_Answered{Answered: k.Answered}
	case *teamv1.Inbound_Commanded:
		k.Commanded.Inbound = in.GetN()
		if c := k.Commanded.GetCommand(); c == teamv1.Commanded_COMMAND_CANCEL || c == teamv1.Commanded_COMMAND_RESUME {
			k.Commanded.Waited = waited
		}
		ev.Kind = &teamv1.Event_Commanded{Commanded: k.Commanded}
	default:
		return nil
	}
	return ev
}
