// Package drive drives a claimed run: it calls the run's agent with what is on record,
// appends what the agent yields, and takes what is left in the run's inbox, until the run
// ends or waits for people. No other package appends to the journal of a claimed run. The
// handler of tasks leaves the inputs in the store; Tasks is all that runs call of it.
package drive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Runner drives runs: it is the one that appends to a claimed journal. Its
// fields are set before use; safe for concurrent use.
type Runner struct {
	// Agent finds the agent of a run. Required.
	Agent func(id string) (agent.Agent, error)
	// Pinned finds it at the revision that the run began with, see a2a.Pinner; unset:
	// as Agent finds it.
	Pinned func(ctx context.Context, id string, pins *teamv1.Pins) (a agent.Agent, release func(), err error)
	// Tasks begins the tasks that runs detach; unset: none can be.
	Tasks Tasks
	// Conversations is where runs read and keep what their agents remember; unset: nowhere.
	Conversations a2a.Conversations
	// Replica names this process in Claimed events.
	Replica string
	// Clock tells the time; unset is time.Now.
	Clock func() time.Time
	// Log gets what callers must not see; unset is none.
	Log *zap.Logger
}

// Drive continues a claimed run from what is on record until it ends, waits for
// people, or ctx ends; ctx's cause says why (agent.ErrShutdown, agent.ErrFenced),
// and nothing terminal is written then. An error means that the journal could
// not be read or written.
func (r *Runner) Drive(ctx context.Context, c a2a.Claim) (a2a.Park, error) {
	events, err := c.Journal.Load(ctx)
	if err != nil {
		return a2a.Park{}, fmt.Errorf("load the journal of %s: %w", c.Root, err)
	}
	if len(events) == 0 || events[0].GetAccepted() == nil {
		return a2a.Park{}, fmt.Errorf("journal of %s does not begin with Accepted", c.Root)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &drive{Runner: *r, claim: c, accepted: events[0].GetAccepted(), cancel: cancel}
	if d.Log == nil {
		d.Log = zap.NewNop()
	}
	d.run = &agent.Run{Root: c.Root, Seed: d.accepted.GetSeed(), Committer: d.commit, Clock: r.Clock}
	if r.Tasks != nil {
		d.run.Detacher = d
	}
	d.remembering(ctx)
	if d.replay(events) {
		return a2a.Park{Done: true}, nil
	}
	d.resumed, d.budget = d.summary.Started, d.envelope()
	return d.serve(ctx)
}

// drive is one claim of a run.
type drive struct {
	Runner
	claim    a2a.Claim
	accepted *teamv1.Accepted
	run      *agent.Run
	budget   *agent.Budget // what the caller has left for it; nil is no limit
	cancel   context.CancelCauseFunc

	one       [1]*teamv1.Event // the list that drain appends: journals keep only what is in it
	recorded  []*teamv1.Event  // for the agent: without the driver's own
	resumed   bool             // the root's start was on record when the run was claimed: somebody has driven it before
	canceled  bool             // a cancel of the root is on record, or a stop has become one
	stops     int64            // the sequence of the stop that has become a cancel; 0 is none
	closing   bool             // a child is to be closed that was canceled, also of a paused run
	lapsed    bool             // nobody answered the root's own question in time
	reply     *teamv1.Reply    // that ended the agent's sequence
	memory    *memory          // what the run reads of its conversation; nil is nothing
	remembers bool             // the root's agent does
	kept      bool             // the exchange is with the conversation
	warnings  []string         // for the run's end

	broken atomic.Pointer[error] // why the journal takes nothing more

	mu   sync.Mutex
	seen map[int64]bool // inbox rows taken or handed over; guarded by mu

	// Commands go on record beside the events of the agent, and each of the two takes note of
	// its own in their order. It does not matter to the summary which of the two comes first.
	record  sync.Mutex
	summary journal.Summary // guarded by record
}

// replay takes over what is on record; true means that the run has ended.
func (d *drive) replay(events []*teamv1.Event) bool {
	for _, ev := range events {
		if ev.GetScope() == "" && ev.GetEnded() != nil {
			return true
		}
		d.summary.Apply(ev)
		d.note(ev)
	}
	return false
}

// note keeps what the agent needs to know of an event on record.
func (d *drive) note(ev *teamv1.Event) {
	root := ev.GetScope() == ""
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Delta, *teamv1.Event_Progress, *teamv1.Event_Claimed, *teamv1.Event_Accepted:
		return
	case *teamv1.Event_Started, *teamv1.Event_Waiting:
		if root {
			return
		}
	case *teamv1.Event_Commanded:
		if d.commanded(ev, k.Commanded) {
			return
		}
	case *teamv1.Event_Expired:
		d.lapsed = d.lapsed || root && k.Expired.GetLimit() == agent.LimitQuestion
	case *teamv1.Event_Noted:
		if d.noted(ev) {
			return
		}
	default:
	}
	d.recorded = append(d.recorded, ev)
}

// parkedSince returns since when nothing of the run goes on: it waits for people, or is
// paused. Zero: it is not parked.
func (d *drive) parkedSince() time.Time {
	d.record.Lock()
	defer d.record.Unlock()
	return d.summary.Clock.Waits()
}

// isParked reports whether nothing of the run goes on.
func (d *drive) isParked() bool { return !d.parkedSince().IsZero() }

// questions returns the open questions of the run, in the order they were asked.
func (d *drive) questions() []*journal.Question {
	d.record.Lock()
	defer d.record.Unlock()
	return d.summary.Questions.Open()
}

// isOpen reports whether a question waits for its answer.
func (d *drive) isOpen(question string) bool {
	d.record.Lock()
	defer d.record.Unlock()
	return d.summary.Questions.Find(question) != nil
}

// serve drives the agent until there is nothing to do without people.
func (d *drive) serve(ctx context.Context) (a2a.Park, error) {
	if err := d.begin(ctx); broke(err) {
		return a2a.Park{}, err
	}
	for {
		took, err := d.takeInputs(ctx)
		if broke(err) {
			return a2a.Park{}, err
		}
		d.cancelIfStopped()
		switch {
		case d.canceled || err != nil:
		case d.run.Paused() && !d.closing:
			if d.isParked() {
				return d.park(), nil
			}
			if err = d.wait(ctx); broke(err) {
				return a2a.Park{}, err
			}
			if err == nil {
				continue
			}
		case d.isParked() && !took:
			return d.park(), nil
		}
		if d.lapsed && !d.canceled {
			return a2a.Park{Done: true}, d.finish(ctx, agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "nobody answered the question in time"))
		}
		resumed := d.run.Resumed()
		err = d.process(ctx)
		if broken := d.broken.Load(); broken != nil {
			return a2a.Park{}, *broken
		}
		if cause := context.Cause(ctx); errors.Is(cause, agent.ErrShutdown) || errors.Is(cause, agent.ErrFenced) {
			return a2a.Park{}, cause
		}
		held := d.run.PausedSince(resumed)
		if d.reply != nil || err != nil || len(d.questions()) == 0 && !held {
			return a2a.Park{Done: true}, d.finish(ctx, err)
		}
		if held && (!d.run.Paused() || d.stopAt() > 0) { // what it held goes on, or is canceled
			continue
		}
		if err := d.wait(ctx); broke(err) {
			return a2a.Park{}, err
		}
	}
}

// broke reports whether an error of the journal ends the drive at once. A journal
// that is full still takes the ends of what is open.
func broke(err error) bool { return err != nil && !errors.Is(err, a2a.ErrLimit) }

// errJournal marks errors of the journal.
var errJournal = errors.New("journal")

// begin records the claim, and the start where it is the first.
func (d *drive) begin(ctx context.Context) error {
	events := []*teamv1.Event{d.event("", &teamv1.Event{Kind: &teamv1.Event_Claimed{Claimed: &teamv1.Claimed{Epoch: d.claim.Epoch, Replica: d.Replica}}})}
	if !d.resumed {
		events = append(events, d.event("", &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{
			Attempt: 1, Deadline: d.accepted.GetDeadline(), Revision: d.accepted.GetPins().GetRevisions()[d.accepted.GetAgent()],
		}}}))
	}
	return d.append(ctx, events...)
}

func (d *drive) event(scope string, ev *teamv1.Event) *teamv1.Event {
	ev.Scope, ev.Agent = scope, d.accepted.GetAgent()
	return ev
}

// append puts events on record and takes note of them.
func (d *drive) append(ctx context.Context, events ...*teamv1.Event) error {
	if err := d.put(ctx, events...); err != nil {
		return d.journalError(err)
	}
	for _, ev := range events {
		d.note(ev)
	}
	return nil
}

// put puts events on record.
func (d *drive) put(ctx context.Context, events ...*teamv1.Event) error {
	if err := d.claim.Journal.Append(ctx, events...); err != nil { // without the lock: it may take its time, and a cancel must not
		return err
	}
	d.record.Lock()
	defer d.record.Unlock()
	for _, ev := range events {
		d.summary.Apply(ev)
	}
	return nil
}

// journalError stops everything that works for the run: nothing more can be recorded.
func (d *drive) journalError(err error) error {
	if errors.Is(err, a2a.ErrLimit) { // open steps still get their ends
		err = agent.Errorf(agent.CodeResourceExhausted, agent.ReasonJournalLimit, "the run has put more on record than it may").Because(err)
		d.cancel(err)
		return err
	}
	err = fmt.Errorf("%w of %s: %w", errJournal, d.claim.Root, err)
	d.broken.CompareAndSwap(nil, &err)
	d.cancel(agent.ErrFenced)
	return err
}

// commit is the run's barrier before effects. A work that has ended has none, and
// a wait that ended with it is no fault of the journal.
func (d *drive) commit(ctx context.Context) error {
	err := d.claim.Journal.Commit(ctx)
	switch {
	case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		return context.Cause(ctx)
	case err != nil:
		return d.journalError(err)
	}
	return nil
}

// process calls the agent once with what is on record and appends what it
// yields. The error is how the agent failed, or the journal's.
func (d *drive) process(ctx context.Context) error {
	d.closing = false
	if d.canceled {
		d.cancel(agent.ErrCanceled)
	}
	a, release, err := d.agent(ctx)
	if err != nil {
		return err
	}
	defer release()
	d.remembers = agent.Remembers(a)
	ctx, releaseTeam, err := d.lent(ctx)
	if err != nil {
		return err
	}
	defer releaseTeam()
	ctx, stop := d.bounded(ctx)
	defer stop()
	err = d.attend(ctx, a)
	if err == nil && d.reply == nil && ctx.Err() != nil {
		err = d.drain(ctx, a) // it parked as its time ended: what is open gets its end
	}
	if d.reply != nil || err != nil {
		d.cancelIfStopped()
	}
	if d.canceled = d.canceled || d.cancelAt("") > 0; d.canceled {
		d.reply = nil // what came after the cancel does not count
		return d.canceledBy(err)
	}
	if d.reply == nil && ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		err = context.Cause(ctx)
	}
	return err
}

// attend drains the agent's sequence and hands over what arrives meanwhile.
func (d *drive) attend(ctx context.Context, a agent.Agent) error {
	watch, stopWatch := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { d.watch(watch) })
	defer wg.Wait()
	defer stopWatch()
	return d.drain(ctx, a)
}

// bounded applies the caller's deadline, which is extended by the time for which the
// run waits for people or is paused.
func (d *drive) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = agent.WithBudget(agent.WithDepth(agent.With(ctx, d.run), int(d.accepted.GetDepth())), d.budget)
	at := d.deadline()
	if at == nil {
		return context.WithCancel(ctx)
	}
	return d.run.WithTimeout(ctx, at.AsTime().Sub(d.run.Now()), agent.ErrTimeout)
}

// deadline is the caller's deadline plus the time for which the run waited; nil means
// no deadline.
func (d *drive) deadline() *timestamppb.Timestamp {
	if d.accepted.GetDeadline() == nil {
		return nil
	}
	d.record.Lock()
	defer d.record.Unlock()
	return timestamppb.New(d.accepted.GetDeadline().AsTime().Add(d.run.Stood(&d.summary.Clock.Stood, time.Time{}, d.run.Now())))
}

// drain appends every event of the agent's sequence before it asks for the next.
func (d *drive) drain(ctx context.Context, a agent.Agent) (err error) {
	appending := false
	defer func() {
		if appending {
			return // a panic of the journal is not the agent's
		}
		if p := recover(); p != nil {
			err = agent.Panicked(d.Log, d.accepted.GetAgent(), p)
		}
	}()
	if err := d.mayCall(ctx, a); err != nil {
		return err
	}
	recording := context.WithoutCancel(ctx) // what was yielded goes on record
	for ev, aerr := range a.Process(ctx, d.request()) {
		if aerr != nil {
			return aerr
		}
		if err := a2a.CheckDepth(ev); err != nil {
			return err
		}
		if r := ev.GetReply(); r != nil && ev.GetScope() == "" {
			d.reply = r
			continue
		}
		d.addReceipt(ev)
		appending = true
		if aerr = d.tellUnread(recording); aerr == nil {
			d.one[0] = ev
			aerr = d.append(recording, d.one[:]...)
		}
		appending = false
		if broke(aerr) {
			return aerr
		}
	}
	return nil
}

// request is the call as it is on record.
func (d *drive) request() *teamv1.ProcessRequest {
	acc := d.accepted
	return &teamv1.ProcessRequest{
		AgentId: acc.GetAgent(), Message: acc.GetMessage(), ContextId: acc.GetMessage().GetContextId(),
		Key: d.run.ID("", "key", 1), Depth: acc.GetDepth(), Deadline: d.deadline(), Envelope: d.left(), Recorded: d.recorded,
		History: acc.GetHistory(), Branch: acc.GetBranch(), Transfers: acc.GetTransfers(), Brief: acc.GetCollaboration(),
	}
}

// wait records that the run waits: for people, or to be resumed.
func (d *drive) wait(ctx context.Context) error {
	d.mu.Lock()
	d.seen = nil // what was handed over and not recorded is still in the inbox
	d.mu.Unlock()
	w := &teamv1.Waiting{Paused: d.run.Paused()}
	for _, q := range d.questions() {
		w.Questions = append(w.Questions, q.ID())
	}
	if err := d.append(ctx, d.event("", &teamv1.Event{Kind: &teamv1.Event_Waiting{Waiting: w}})); err != nil {
		return err
	}
	return d.commit(ctx)
}

// park says until when the run waits: the earliest lapse of a question, also while
// it is paused.
func (d *drive) park() a2a.Park {
	var p a2a.Park
	for _, q := range d.questions() {
		if at := expires(q); at.Unix() > 0 && (p.Until.IsZero() || at.Before(p.Until)) {
			p.Until = at
		}
	}
	return p
}
