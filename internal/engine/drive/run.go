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
	rec := &record{claim: c, accepted: events[0].GetAccepted(), room: room, cancel: cancel}
	rec.run = &agent.Run{Root: c.Root, Seed: rec.accepted.GetSeed(), Committer: rec.commit, CallMemory: rec.callMemory, Clock: r.Clock}
	rec.run.Spans, _ = c.Journal.(agent.Spans)
	ctx = rec.run.InSpan(ctx, "", agent.Given{})
	d := r.newDrive(rec)
	d.conversation.open(ctx)
	if d.replay(events) {
		return runs.Park{Done: true}, nil
	}
	if err := d.funds.openAccount(ctx); err != nil {
		return runs.Park{}, err
	}
	defer d.funds.account.Close()
	if from := lastReplica(events); from != "" && from != d.replica {
		d.log.Debug("run continues; another process drove it before", zap.String("replica", from))
	}
	if d.funds.sharesBudgets() {
		if _, err := d.funds.openPurse(ctx, d.rec.events); err != nil {
			return runs.Park{}, err
		}
	}
	d.resumed, d.funds.budget = d.rec.started(), d.funds.envelope()
	ctx, end := d.halting.begin(ctx) // after the replay, which applies the commands of the past
	defer end()
	park, err := d.serve(ctx)
	if errors.Is(err, agent.ErrShutdown) {
		d.log.Info("run handed over: it continues on another replica, or at the next start")
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
	rec          *record
	funds        funds
	agents       agents
	conversation conversation
	detacher     detacher
	halting      halting // what halts ask of the run
	inbox        inbox   // what was read of the inbox
	replica      string
	log          *zap.Logger

	one      [1]*teamv1.Event // the slice that drain appends; journals keep its element, not the slice
	resumed  bool             // the run was started by an earlier claim
	canceled bool             // a cancel of the root is recorded, or stops is set
	stops    int64            // sequence of the stop that cancelIfStopped has applied; 0 without one
	closing  bool             // a child was canceled: the agent is called to close it, even while the run is paused
	lapsed   bool             // the root's own question expired without an answer
	reply    *teamv1.Reply    // the reply that ended the agent's sequence; nil before that
	callee   agent.Agent      // the root's agent; nil before it is called
}

// newDrive returns the work on a claim, before it has read any event.
func (r *Runner) newDrive(rec *record) *drive {
	log := cmp.Or(r.Log, zap.NewNop())
	log = rec.run.Logger(log.WithLazy(zap.String("task", rec.claim.Root), zap.String("context", rec.accepted.GetMessage().GetContextId()), zap.String("agent", rec.accepted.GetAgent())))
	d := &drive{
		rec: rec, log: log, replica: r.Replica,
		agents:       agents{rec: rec, byID: r.Agent, pinned: r.Pinned, log: log},
		conversation: conversation{rec: rec, store: r.Conversations, log: log},
		halting:      halting{rec: rec, halts: r.Halts},
	}
	d.funds = funds{rec: rec, agents: &d.agents, accounts: r.Accounts, shares: r.Shares}
	d.detacher = detacher{rec: rec, funds: &d.funds, tasks: r.Tasks, log: log}
	if r.Tasks != nil {
		rec.run.Detacher = &d.detacher
	}
	rec.note = d.note
	return d
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
		if d.conversation.noted(ev) {
			return
		}
	default:
	}
	d.rec.events = append(d.rec.events, ev)
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
		case d.rec.run.Paused() && !d.closing:
			if d.rec.isParked() {
				return d.parked(ctx)
			}
			if err = d.wait(ctx); broke(err) {
				return runs.Park{}, err
			}
			if err == nil {
				continue
			}
		case d.rec.isParked() && !took:
			return d.parked(ctx)
		}
		if d.lapsed && !d.canceled {
			return runs.Park{Done: true}, d.finish(ctx, agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "the question was not answered in time"))
		}
		resumed := d.rec.run.Resumed()
		err = d.process(ctx)
		if broken := d.rec.broken.Load(); broken != nil {
			return runs.Park{}, *broken
		}
		if cause := context.Cause(ctx); errors.Is(cause, agent.ErrShutdown) || errors.Is(cause, agent.ErrFenced) {
			return runs.Park{}, cause
		}
		held := d.rec.run.PausedSince(resumed)
		if d.reply != nil || err != nil || len(d.rec.questions()) == 0 && !held {
			return runs.Park{Done: true}, d.finish(ctx, err)
		}
		if held && (!d.rec.run.Paused() || d.rec.stopAt() > 0) { // the held steps continue, or are canceled by the stop
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

// begin records the claim and, for the first claim of a run, its start.
func (d *drive) begin(ctx context.Context) error {
	events := []*teamv1.Event{d.rec.event("", &teamv1.Event{Kind: &teamv1.Event_Claimed{Claimed: &teamv1.Claimed{Epoch: d.rec.claim.Epoch, Replica: d.replica}}})}
	if !d.resumed {
		events = append(events, d.rec.event("", &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{
			Attempt: 1, Deadline: d.rec.accepted.GetDeadline(), Revision: d.rec.accepted.GetPins().GetRevisions()[d.rec.accepted.GetAgent()],
		}}}))
	}
	return d.rec.append(ctx, events...)
}

// process calls the agent once with the recorded events and appends what it yields. The error is
// that of the agent or of the journal.
func (d *drive) process(ctx context.Context) error {
	closing := d.closing
	d.closing = false
	if d.canceled {
		d.rec.cancel(agent.ErrCanceled)
	}
	a, release, err := d.agents.agent(ctx, d.canceled)
	if err != nil {
		return err
	}
	defer release()
	d.conversation.remembers, d.conversation.tools = agent.Remembers(a), agent.RemembersTools(a)
	ctx, releaseTeam, err := d.agents.lent(ctx)
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
	ctx = spending.WithBudget(agent.WithDepth(agent.With(ctx, d.rec.run), int(d.rec.accepted.GetDepth())), d.funds.budget)
	at := d.deadline()
	if at == nil {
		return context.WithCancel(ctx)
	}
	return d.rec.run.WithTimeout(ctx, at.AsTime().Sub(d.rec.run.Now()), agent.ErrTimeout)
}

// deadline returns the caller's deadline plus the time for which the run has waited or was paused,
// nil without a deadline.
func (d *drive) deadline() *timestamppb.Timestamp {
	if d.rec.accepted.GetDeadline() == nil {
		return nil
	}
	now := d.rec.run.Now()
	return timestamppb.New(d.rec.accepted.GetDeadline().AsTime().Add(of(d.rec, func(s *journal.Summary) time.Duration {
		return d.rec.run.PausedFor(&s.Clock.Pauses, time.Time{}, now)
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
			err = agent.Panicked(d.log, d.rec.accepted.GetAgent(), p)
		}
	}()
	if err := d.mayCall(ctx, a); err != nil {
		return err
	}
	held := d.funds.hold
	if !d.canceled {
		if err := d.funds.reserveForRoot(ctx, a); err != nil {
			return err
		}
	}
	if d.funds.hold != held && (d.halting.use.Check() != nil || d.rec.run.Paused()) {
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
		if aerr = d.conversation.tellUnread(recording); aerr == nil {
			d.one[0] = ev
			aerr = d.rec.append(recording, d.one[:]...)
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
	acc := d.rec.accepted
	return &teamv1.ProcessRequest{
		AgentId: acc.GetAgent(), Message: acc.GetMessage(), ContextId: acc.GetMessage().GetContextId(),
		Key: d.rec.run.ID("", "key", 1), Depth: acc.GetDepth(), Deadline: d.deadline(), Envelope: d.funds.left(), Recorded: d.rec.events,
		History: acc.GetHistory(), Branch: acc.GetBranch(), Transfers: acc.GetTransfers(), Brief: acc.GetCollaboration(),
	}
}

// wait records that the run waits for people or for a resume.
func (d *drive) wait(ctx context.Context) error {
	d.inbox.forget()
	w := &teamv1.Waiting{Paused: d.rec.run.Paused()}
	for _, q := range d.rec.questions() {
		w.Questions = append(w.Questions, q.ID())
	}
	if err := d.rec.append(ctx, d.rec.event("", &teamv1.Event{Kind: &teamv1.Event_Waiting{Waiting: w}})); err != nil {
		return err
	}
	return d.rec.commit(ctx)
}

// park returns how the run is parked: until the earliest expiry of an open question, also while it
// is paused, or without a time if no question expires.
func (d *drive) park() runs.Park {
	p := runs.Park{Halts: d.halting.parks(d.rec.pausedBy() > 0)}
	for _, q := range d.rec.questions() {
		if at := expires(q); at.Unix() > 0 && (p.Until.IsZero() || at.Before(p.Until)) {
			p.Until = at
		}
	}
	return p
}

// parked returns how the run is parked. What it holds of its account is what is on record.
func (d *drive) parked(ctx context.Context) (runs.Park, error) {
	return d.park(), d.funds.settleAccount(ctx, nil, spending.HeldOn(d.rec.events))
}
