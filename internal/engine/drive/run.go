// Package drive drives a claimed run. It calls the run's agent with the recorded events, appends
// the events that the agent yields, and records the inputs in the run's inbox, until the run ends
// or waits for people. Besides it only the engine appends to the journal of a claimed run: the end of
// one that cannot be driven. Package a2a leaves the inputs in the store; a run calls it only through Tasks.
package drive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/newer"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// Runner drives runs. Its fields must be set before use. It is safe for concurrent use.
type Runner struct {
	// Agent returns the agent with an id. Required.
	Agent func(id string) (agent.Agent, error)
	// Pinned returns the agent with an id at the revision with which the run began, see a2a.Pinner.
	// If nil, Agent is used.
	Pinned func(ctx context.Context, id string, pins *teamv1.Pins) (a agent.Agent, release func(), err error)
	// Tasks begins the tasks that runs detach. If nil, runs cannot detach tasks.
	Tasks Tasks
	// Conversations stores what agents remember of a conversation. If nil, they remember nothing.
	Conversations runs.Conversations
	// Accounts are the limits of accounts. If nil, accounts have no limits.
	Accounts *account.Accounts
	// Shares are the budgets that runs of the same message share. If nil, each run has budgets of its own.
	Shares account.Shares
	// Memory is the budget of what runs and their calls hold in memory. If nil, that has no limit.
	Memory *inflight.Budget
	// Halts are the halts in force. If nil, nothing is ever halted.
	Halts *inforce.Halts
	// Replica is the name of this process in Claimed events.
	Replica string
	// Clock returns the current time. If nil, time.Now is used.
	Clock func() time.Time
	// Log receives the details of failures, which callers must not see. If nil, nothing is logged.
	Log *zap.Logger
}

// Drive continues a claimed run from its recorded events until it ends, waits for people, or ctx
// ends. In the last case it returns the cause of ctx (agent.ErrShutdown or agent.ErrFenced) and
// records no end. runs.ErrNewer means that only a later version of the program can drive the run. Any other error means that the journal could not be read or written, or that the
// definition of the agent could not be read.
func (r *Runner) Drive(ctx context.Context, c runs.Claim) (runs.Park, error) {
	room, later, err := r.room(ctx, c)
	if err != nil || later != nil {
		return *cmp.Or(later, &runs.Park{}), err
	}
	defer room.Release()
	events, err := c.Journal.Load(ctx)
	if err != nil {
		return runs.Park{}, fmt.Errorf("load the journal of %s: %w", c.Root, err)
	}
	if len(events) == 0 || events[0].GetAccepted() == nil {
		return runs.Park{}, fmt.Errorf("journal of %s does not begin with Accepted", c.Root)
	}
	if i := slices.IndexFunc(events, func(ev *teamv1.Event) bool { return ev.GetKind() == nil && newer.Has(ev) }); i >= 0 {
		return runs.Park{}, fmt.Errorf("event %d of %s: %w", events[i].GetSeq(), c.Root, runs.ErrNewer)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &drive{Runner: *r, claim: c, room: room, accepted: events[0].GetAccepted(), cancel: cancel}
	if d.Log == nil {
		d.Log = zap.NewNop()
	}
	d.Log = d.Log.WithLazy(zap.String("task", c.Root), zap.String("context", d.accepted.GetMessage().GetContextId()), zap.String("agent", d.accepted.GetAgent()))
	d.run = &agent.Run{Root: c.Root, Seed: d.accepted.GetSeed(), Committer: d.commit, Clock: r.Clock}
	d.run.CallMemory = d.callMemory
	d.run.Spans, _ = c.Journal.(agent.Spans)
	ctx, d.Log = d.run.InSpan(ctx, "", agent.Given{}), d.run.Logger(d.Log)
	if r.Tasks != nil {
		d.run.Detacher = d
	}
	d.remembering(ctx)
	if d.replay(events) {
		return runs.Park{Done: true}, nil
	}
	if err := d.openAccount(ctx); err != nil {
		return runs.Park{}, err
	}
	defer d.account.Close()
	if from := lastReplica(events); from != "" && from != d.Replica {
		d.Log.Debug("run continues; another process drove it before", zap.String("replica", from))
	}
	if d.sharesBudgets() {
		if _, err := d.openPurse(ctx, d.recorded); err != nil {
			return runs.Park{}, err
		}
	}
	d.resumed, d.budget = d.started(), d.envelope()
	ctx, end := d.underHalts(ctx) // after the replay, which applies the commands of the past
	defer end()
	park, err := d.serve(ctx)
	if errors.Is(err, agent.ErrShutdown) {
		d.Log.Info("run handed over: it continues on another replica, or at the next start")
	}
	return park, err
}

// lastReplica returns the replica that drove a run last, "" if none has.
func lastReplica(events []*teamv1.Event) string {
	for _, ev := range slices.Backward(events) {
		if c := ev.GetClaimed(); c != nil {
			return c.GetReplica()
		}
	}
	return ""
}

// drive is the work on one claim of a run.
type drive struct {
	Runner
	claim    runs.Claim
	accepted *teamv1.Accepted
	run      *agent.Run
	budget   *spending.Budget    // what is left of the caller's limits; nil means no limit
	account  *account.RunAccount // nil if the account has no limits
	opening  sync.Mutex          // held while purse is opened
	purse    *account.Purse      // what the run shares with other runs; nil before it is needed
	room     *inflight.Hold      // what the run holds in memory
	hold     *spending.Budget    // see reserveForRoot; nil without a reservation
	cancel   context.CancelCauseFunc

	one            [1]*teamv1.Event // the slice that drain appends; journals keep its element, not the slice
	recorded       []*teamv1.Event  // the events that the agent is given: all but the driver's own
	resumed        bool             // the run was started by an earlier claim
	canceled       bool             // a cancel of the root is recorded, or stops is set
	stops          int64            // sequence of the stop that cancelIfStopped has applied; 0 without one
	closing        bool             // a child was canceled: the agent is called to close it, even while the run is paused
	lapsed         bool             // the root's own question expired without an answer
	reply          *teamv1.Reply    // the reply that ended the agent's sequence; nil before that
	memory         *memory          // what the run reads of its conversation; nil means nothing
	remembers      bool             // the root's agent remembers its conversation
	remembersTools int              // how many of its last tool calls as well
	kept           bool             // the exchange is stored in the conversation
	warnings       []string         // warnings for the end of the run
	callee         agent.Agent      // the root's agent; nil before it is called
	halting        halting          // what halts ask of the run

	broken atomic.Pointer[error] // the error for which the drive ends; nil while it continues

	mu   sync.Mutex
	seen map[int64]bool // inbox rows that were recorded or delivered; guarded by mu
}

// replay applies the recorded events, and reports whether the run has ended.
func (d *drive) replay(events []*teamv1.Event) bool {
	for _, ev := range events {
		if ev.GetScope() == "" && ev.GetEnded() != nil {
			return true
		}
		d.note(ev)
	}
	return false
}

// of returns something of the state of the run as it is recorded, which the journal keeps.
func of[T any](d *drive, get func(*journal.Summary) T) (t T) {
	d.claim.Journal.State(func(s *journal.Summary) { t = get(s) })
	return t
}

// note applies a recorded event to the drive, and keeps it for the agent unless only the driver
// needs it.
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

// parkedSince returns since when the run has been parked, because it waits for people or is paused.
// It is the zero time if the run is not parked.
func (d *drive) parkedSince() time.Time {
	return of(d, func(s *journal.Summary) time.Time { return s.Clock.Waits() })
}

// isParked reports whether the run is parked.
func (d *drive) isParked() bool { return !d.parkedSince().IsZero() }

// started reports whether an earlier claim has started the run.
func (d *drive) started() bool { return of(d, func(s *journal.Summary) bool { return s.Started }) }

// questions returns the open questions of the run, in the order they were asked.
func (d *drive) questions() []*journal.Question {
	return of(d, func(s *journal.Summary) []*journal.Question { return s.Questions.Open() })
}

// isOpen reports whether the question with an id is open.
func (d *drive) isOpen(question string) bool {
	return of(d, func(s *journal.Summary) bool { return s.Questions.Find(question) != nil })
}

// serve calls the agent until the run has ended or is parked.
func (d *drive) serve(ctx context.Context) (runs.Park, error) {
	if err := d.begin(ctx); broke(err) {
		return runs.Park{}, err
	}
	for {
		took, err := d.takeInputs(ctx)
		if err == nil {
			err = d.obeyHalts(ctx)
		}
		if broke(err) {
			return runs.Park{}, err
		}
		d.cancelIfStopped()
		switch {
		case d.canceled || err != nil:
		case d.run.Paused() && !d.closing:
			if d.isParked() {
				return d.parked(ctx)
			}
			if err = d.wait(ctx); broke(err) {
				return runs.Park{}, err
			}
			if err == nil {
				continue
			}
		case d.isParked() && !took:
			return d.parked(ctx)
		}
		if d.lapsed && !d.canceled {
			return runs.Park{Done: true}, d.finish(ctx, agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "the question was not answered in time"))
		}
		resumed := d.run.Resumed()
		err = d.process(ctx)
		if broken := d.broken.Load(); broken != nil {
			return runs.Park{}, *broken
		}
		if cause := context.Cause(ctx); errors.Is(cause, agent.ErrShutdown) || errors.Is(cause, agent.ErrFenced) {
			return runs.Park{}, cause
		}
		held := d.run.PausedSince(resumed)
		if d.reply != nil || err != nil || len(d.questions()) == 0 && !held {
			return runs.Park{Done: true}, d.finish(ctx, err)
		}
		if held && (!d.run.Paused() || d.stopAt() > 0) { // the held steps continue, or are canceled by the stop
			continue
		}
		if err := d.wait(ctx); broke(err) {
			return runs.Park{}, err
		}
	}
}

// broke reports whether an error ends the drive at once. The error of a full journal does not,
// because such a journal still accepts the ends of open steps.
func broke(err error) bool { return err != nil && !errors.Is(err, runs.ErrLimit) }

// errJournal is wrapped by errors of the journal that end the drive.
var errJournal = errors.New("journal")

// begin records the claim and, for the first claim of a run, its start.
func (d *drive) begin(ctx context.Context) error {
	events := []*teamv1.Event{d.event("", &teamv1.Event{Kind: &teamv1.Event_Claimed{Claimed: &teamv1.Claimed{Epoch: d.claim.Epoch, Replica: d.Replica}}})}
	if !d.resumed {
		events = append(events, d.event("", &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{
			Attempt: 1, Deadline: d.accepted.GetDeadline(), Revision: d.accepted.GetPins().GetRevisions()[d.accepted.GetAgent()],
		}}}))
	}
	return d.append(ctx, events...)
}

// event returns ev with its scope, and the root's agent as its agent.
func (d *drive) event(scope string, ev *teamv1.Event) *teamv1.Event {
	ev.Scope, ev.Agent = scope, d.accepted.GetAgent()
	return ev
}

// append records events and applies them to the drive. The error is that of journalError.
func (d *drive) append(ctx context.Context, events ...*teamv1.Event) error {
	if err := d.appendInTurn(ctx, events); err != nil {
		return d.journalError(err)
	}
	for _, ev := range events {
		d.note(ev)
		d.grow(ev)
	}
	return nil
}

// journalError cancels all work for the run, because nothing more can be recorded, and returns the
// error that the drive reports. If the journal is full, the drive continues until open steps have
// ended.
func (d *drive) journalError(err error) error {
	if errors.Is(err, runs.ErrLimit) { // open steps still get their ends
		err = agent.Errorf(agent.CodeResourceExhausted, agent.ReasonJournalLimit, "the run's journal has reached its maximum size").Because(err)
		d.cancel(err)
		return err
	}
	err = fmt.Errorf("%w of %s: %w", errJournal, d.claim.Root, err)
	d.broken.CompareAndSwap(nil, &err)
	d.cancel(agent.ErrFenced)
	return err
}

// commit waits until everything appended is durable; agents call it before an effect. If ctx ends,
// it returns the cause, which is not an error of the journal.
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

// process calls the agent once with the recorded events and appends what it yields. The error is
// that of the agent or of the journal.
func (d *drive) process(ctx context.Context) error {
	closing := d.closing
	d.closing = false
	if d.canceled {
		d.cancel(agent.ErrCanceled)
	}
	a, release, err := d.agent(ctx)
	if err != nil {
		return err
	}
	defer release()
	d.remembers, d.remembersTools = agent.Remembers(a), agent.RemembersTools(a)
	ctx, releaseTeam, err := d.lent(ctx)
	if err != nil {
		return err
	}
	defer releaseTeam()
	ctx, stop := d.bounded(ctx)
	defer stop()
	if !d.canceled && !closing && d.halting.use.Check() != nil {
		return nil // halted since: the run is paused, and may be canceled next
	}
	err = d.attend(ctx, a)
	if err == nil && d.reply == nil && ctx.Err() != nil {
		err = d.drain(ctx, a) // the deadline passed: another call ends open steps
	}
	if d.reply != nil || err != nil {
		d.cancelIfStopped()
	}
	if d.canceled = d.canceled || d.cancelAt("") > 0; d.canceled {
		d.reply = nil // a reply after the cancel does not count
		return d.canceledBy(err)
	}
	if d.reply == nil && ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		err = context.Cause(ctx)
	}
	return err
}

// attend runs drain and delivers inputs that arrive in the meantime.
func (d *drive) attend(ctx context.Context, a agent.Agent) error {
	d.callee = a
	watch, stopWatch := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { d.watch(watch) })
	defer wg.Wait()
	defer stopWatch()
	return d.drain(ctx, a)
}

// bounded adds the run, its budget and the caller's deadline to ctx. The deadline is extended by
// the time for which the run waits for people or is paused.
func (d *drive) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = spending.WithBudget(agent.WithDepth(agent.With(ctx, d.run), int(d.accepted.GetDepth())), d.budget)
	at := d.deadline()
	if at == nil {
		return context.WithCancel(ctx)
	}
	return d.run.WithTimeout(ctx, at.AsTime().Sub(d.run.Now()), agent.ErrTimeout)
}

// deadline returns the caller's deadline plus the time for which the run has waited or was paused,
// nil without a deadline.
func (d *drive) deadline() *timestamppb.Timestamp {
	if d.accepted.GetDeadline() == nil {
		return nil
	}
	now := d.run.Now()
	return timestamppb.New(d.accepted.GetDeadline().AsTime().Add(of(d, func(s *journal.Summary) time.Duration {
		return d.run.PausedFor(&s.Clock.Pauses, time.Time{}, now)
	})))
}

// drain calls the agent and appends each event of its sequence before it asks for the next.
func (d *drive) drain(ctx context.Context, a agent.Agent) (err error) {
	appending := false
	defer func() {
		if appending {
			return // the panic came from the journal, not from the agent
		}
		if p := recover(); p != nil {
			err = agent.Panicked(d.Log, d.accepted.GetAgent(), p)
		}
	}()
	if err := d.mayCall(ctx, a); err != nil {
		return err
	}
	held := d.hold
	if err := d.reserveForRoot(ctx, a); err != nil {
		return err
	}
	if d.hold != held && (d.halting.use.Check() != nil || d.run.Paused()) {
		return nil // halted or paused while it waited for the reservation
	}
	recording := context.WithoutCancel(ctx) // what was yielded is recorded even if ctx ends
	for ev, aerr := range a.Process(ctx, d.request()) {
		if aerr != nil {
			return aerr
		}
		if err := checkDepth(ev); err != nil {
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

// request returns the call of the agent, with the recorded events.
func (d *drive) request() *teamv1.ProcessRequest {
	acc := d.accepted
	return &teamv1.ProcessRequest{
		AgentId: acc.GetAgent(), Message: acc.GetMessage(), ContextId: acc.GetMessage().GetContextId(),
		Key: d.run.ID("", "key", 1), Depth: acc.GetDepth(), Deadline: d.deadline(), Envelope: d.left(), Recorded: d.recorded,
		History: acc.GetHistory(), Branch: acc.GetBranch(), Transfers: acc.GetTransfers(), Brief: acc.GetCollaboration(),
	}
}

// wait records that the run waits for people or for a resume.
func (d *drive) wait(ctx context.Context) error {
	d.mu.Lock()
	d.seen = nil // what was delivered but not recorded is still in the inbox
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

// park returns how the run is parked: until the earliest expiry of an open question, also while it
// is paused, or without a time if no question expires.
func (d *drive) park() runs.Park {
	p := runs.Park{Halts: d.halting.parks(d.pausedBy() > 0)}
	for _, q := range d.questions() {
		if at := expires(q); at.Unix() > 0 && (p.Until.IsZero() || at.Before(p.Until)) {
			p.Until = at
		}
	}
	return p
}
