package team

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// Process implements agent.Agent.
func (l *Loop) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		run, l := agent.From(ctx), l.boundedBy(req)
		p := newProcess(ctx, l, req, run)
		p.yield = yield
		p.recall(req, run.Memory)
		p.serve(agent.With(ctx, p.run))
	}
}

// serve applies the record, runs the loop, and yields the last event or error of the sequence.
func (p *process) serve(ctx context.Context) {
	for _, ev := range p.req.GetRecorded() {
		p.apply(ev)
	}
	p.cancelDropped()
	p.inbox.listener = p.run.Listen(p.Scope)
	defer p.inbox.listener.Close()
	ctx, p.cancel = context.WithCancelCause(p.bindCounters(p.bindBudget(ctx)))
	p.actOnAnswers()
	defer p.runner.Budget.Release()
	defer p.cancel(step.ErrStopped)
	p.workers.quit = make(chan struct{})
	defer p.workers.close()
	defer p.cancel(step.ErrStopped) // before the wait: also when the consumer panics

	bounded, stop := p.withTimeout(ctx)
	defer stop()
	reply, err := p.work(bounded)
	if err != nil {
		reply, err = p.finalize(ctx, err)
	}
	if !errors.Is(err, step.ErrStopped) && (reply != nil || err != nil) {
		if cerr := p.closeSteps(ctx); cerr != nil {
			err = cerr
		}
	}
	switch {
	case p.stopped || errors.Is(err, step.ErrStopped):
	case err != nil:
		p.yield(nil, p.withSpent(err))
	case reply != nil:
		p.yield(p.event("", &teamv1.Event{Kind: &teamv1.Event_Reply{Reply: reply}}), nil)
	}
}

// phase is the next thing that the loop does.
type phase int

const (
	expired  phase = iota // the context has ended and no step runs: the run ends
	parked                // all open steps wait for people, or for the run to be resumed
	collect               // wait for a running step, the inbox, or a wake-up time
	take                  // record the messages that have arrived
	check                 // pass messages that have arrived through the input middlewares
	decide                // ask the scheduler, or act on its recorded reply, transfer or question
	dispatch              // complete or start steps
)

// next returns the next phase. The conditions are tried in order; the first that holds decides.
func (p *process) next(ctx context.Context) phase {
	ended, busy := hasEnded(ctx), len(p.workers.running) > 0
	p.paused = p.run.Paused()
	switch {
	case ended && busy: // decide nothing more, but wait for the running steps
		return collect
	case ended:
		return expired
	case p.isAsking() && !busy:
		return parked
	case p.mustWait && (busy || !p.idle.wake.IsZero()):
		return collect
	case p.mustWait:
		return parked
	case p.inbox.hasUnread():
		return take
	case !p.paused && p.hasUnchecked():
		return check
	case (!p.paused || p.hasAnswer()) && p.mayDecide():
		return decide
	}
	return dispatch // in a paused run it only closes canceled steps
}

// work is the loop. It returns neither a reply nor an error when the run is parked.
func (p *process) work(ctx context.Context) (*teamv1.Reply, error) {
	if ctx.Err() != nil {
		return nil, p.cause(ctx)
	}
	if p.run.Paused() && len(p.Steps) == 0 {
		return nil, nil
	}
	if err := p.begin(ctx); err != nil {
		return nil, err
	}
	for {
		var reply *teamv1.Reply
		var err error
		switch p.next(ctx) {
		case expired:
			return nil, p.cause(ctx)
		case parked:
			return nil, nil
		case collect:
			err = p.collect(ctx)
		case take:
			err = p.recordInputs()
		case check:
			err = p.checkInput(ctx)
		case decide:
			reply, err = p.decideNext(ctx)
		case dispatch:
			err = p.dispatch(ctx)
		}
		if reply != nil || err != nil {
			return reply, err
		}
	}
}

// begin does what comes before the first decision and is not on record yet.
func (p *process) begin(ctx context.Context) error {
	if err := checkBrief(p.req.GetBrief()); err != nil {
		return err
	}
	if len(p.inputFaults) > 0 {
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "the message for %s %q %s", p.noun, p.cfg.ID, strings.Join(p.inputFaults, ", and "))
	}
	if err := p.checkInput(ctx); err != nil {
		return err
	}
	if err := p.checkFiles(ctx); err != nil {
		return err
	}
	if err := p.prepare(ctx); err != nil {
		return err
	}
	return p.offer(ctx)
}

// prepare checks the nesting depth and records the roster at the start of a run.
func (p *process) prepare(ctx context.Context) error {
	if len(p.cfg.Members) == 0 || len(p.Roster) > 0 {
		return nil
	}
	judges := p.isAcceptance() // then it takes the place of its member, and is no team to readers
	depth := int(p.req.GetDepth())
	if !judges {
		depth++
	}
	if most, _ := agent.DepthLimit(ctx); depth > most {
		return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonMaxDepth,
			"team %q is nested deeper than %d levels, the most that limits.max_depth of it or of a team above allows, on the path %s; raise it, or reduce the nesting",
			p.cfg.ID, most, p.Path)
	}
	if !judges {
		if err := p.recordPrepared(); err != nil {
			return err
		}
	}
	k, _ := p.askInfo(ctx, depth) // a cycle of teams fails when the member is dispatched
	for i, m := range p.cfg.Members {
		if k.infos[i] == nil && !m.Disabled {
			if err := p.note("MEMBER_UNAVAILABLE", "member "+m.ID+" could not be asked what it does"); err != nil {
				return err
			}
		}
	}
	return p.emit("", &teamv1.Event{Kind: p.rosterEvent(p.runner.Run.Account(), k)})
}

// withTimeout bounds ctx by the team's own timeout, counted from the scope's first recorded event.
// Time in which the run waited for people or was paused does not count.
func (p *process) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	start := p.started
	if start.IsZero() {
		start = p.run.Now()
	}
	now := p.run.Now()
	left := p.limits.timeout + p.run.PausedFor(&p.clock.Pauses, start, now) - now.Sub(start)
	return p.run.WithTimeout(ctx, left, errTeamTimeout)
}

// hasEnded reports whether ctx has ended. If its deadline has passed and its timer is late, it
// waits for the timer.
func hasEnded(ctx context.Context) bool {
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// mayDecide reports whether the scheduler is to be asked: only asynchronous steps are open and the
// scheduler did not choose to wait for them. Refused steps have to end, and detached ones to start,
// before the next decision.
func (p *process) mayDecide() bool {
	if p.schedulerWaits || p.isAsking() {
		return false
	}
	for st := range p.pending() {
		if !st.Step.GetAsync() || st.Step.GetDetached() || st.Refusal != nil {
			return false
		}
	}
	return true
}

// hasAnswer reports whether the scope works for another one and its model has answered without
// calling a tool. Handing on such an answer is allowed while the run is paused, because it belongs
// to work that was already running.
func (s *State) hasAnswer() bool {
	if s.Scope == "" || len(s.Steps) == 0 {
		return false
	}
	last := s.Steps[len(s.Steps)-1]
	return last.Done && last.Turn.GetText() != "" && len(last.Turn.GetToolCalls()) == 0
}
