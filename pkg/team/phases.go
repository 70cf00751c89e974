package team

import (
	"context"
	"errors"
	"iter"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// Process implements agent.Agent.
func (l *Loop) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		run, l := agent.From(ctx), l.within(req)
		p := newProcess(ctx, l, req, run)
		p.yield = yield
		p.recall(req, run.Memory)
		p.serve(agent.With(ctx, p.run))
	}
}

// serve runs the loop and says how the sequence ends.
func (p *process) serve(ctx context.Context) {
	for _, ev := range p.req.GetRecorded() {
		p.apply(ev)
	}
	p.cancelDropped()
	p.listener = p.run.Listen(p.Scope)
	defer p.listener.Close()
	ctx, p.cancel = context.WithCancelCause(p.allow(p.bind(ctx)))
	defer p.runner.Budget.Release()
	defer p.cancel(step.ErrStopped)
	p.quit = make(chan struct{})
	defer p.wg.Wait()
	defer close(p.quit)
	defer p.cancel(step.ErrStopped) // before the wait: also when the consumer panics

	bounded, stop := p.clock(ctx)
	defer stop()
	reply, err := p.work(bounded)
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

// phase is what the loop does next.
type phase int

const (
	expired  phase = iota // the context has ended, and nothing runs: the run ends with it
	parked                // all that is open waits for people, or for the run to be resumed
	collect               // wait for what runs, for the inbox, or for the alarm
	take                  // record what has arrived
	check                 // have middlewares look at what has come in
	decide                // ask the scheduler, or conclude with what it has said
	dispatch              // settle and start steps
)

// next returns what the loop does next: the first condition that holds decides.
func (p *process) next(ctx context.Context) phase {
	ended, busy := over(ctx), len(p.running) > 0
	p.paused = p.run.Paused()
	switch {
	case ended && busy: // nothing more is decided; what runs is waited for
		return collect
	case ended:
		return expired
	case p.isAsking() && !busy:
		return parked
	case p.settled && (busy || !p.alarm.IsZero()):
		return collect
	case p.settled:
		return parked
	case p.unread():
		return take
	case !p.paused && p.unchecked():
		return check
	case (!p.paused || p.answers()) && p.mayDecide():
		return decide
	}
	return dispatch // of a paused run what is canceled is closed, and nothing begins
}

// work is the loop itself. Neither a reply nor an error: parked.
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
			err = p.takeInputs()
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

// begin does what comes before the first decision, as far as it is not on record.
func (p *process) begin(ctx context.Context) error {
	if err := checkBrief(p.req.GetBrief()); err != nil {
		return err
	}
	if err := p.checkInput(ctx); err != nil {
		return err
	}
	if err := p.prepare(ctx); err != nil {
		return err
	}
	return p.offer(ctx)
}

// prepare puts the roster on record at the start of a run.
func (p *process) prepare(ctx context.Context) error {
	if len(p.cfg.Members) == 0 || len(p.Roster) > 0 {
		return nil
	}
	depth := int(p.req.GetDepth()) + 1
	if most, _ := agent.DepthLimit(ctx); depth > most {
		return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonMaxDepth,
			"team %q is nested deeper than %d levels, the most that limits.max_depth of it or of a team above allows, on the path %s; raise it, or nest less deep",
			p.cfg.ID, most, p.Path)
	}
	if err := p.prepared(); err != nil {
		return err
	}
	k, _ := p.askInfo(ctx, depth) // a circle ends when it is dispatched
	for i, m := range p.cfg.Members {
		if k.infos[i] == nil && !m.Disabled {
			if err := p.note("MEMBER_UNAVAILABLE", "member "+m.ID+" could not be asked what it does"); err != nil {
				return err
			}
		}
	}
	return p.emit("", &teamv1.Event{Kind: p.rosterEvent(k)})
}

// clock applies the team's own timeout, counted from the scope's first recorded event.
// It does not advance while the run waits for people or is paused.
func (p *process) clock(ctx context.Context) (context.Context, context.CancelFunc) {
	start := p.started
	if start.IsZero() {
		start = p.run.Now()
	}
	now := p.run.Now()
	left := p.limits.timeout + p.run.Stood(&p.fold.clock.Stood, start, now) - now.Sub(start)
	return p.run.WithTimeout(ctx, left, errTeamTimeout)
}

// over reports whether a context has ended, or is about to: its time has come and
// its timer is late.
func over(ctx context.Context) bool {
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// mayDecide reports whether the scheduler is to be asked: nothing is open but
// asynchronous steps, and it does not wait for those. Before anybody is told of it
// what is refused has its end, and what becomes a task of its own has begun.
func (p *process) mayDecide() bool {
	if p.waits || p.isAsking() {
		return false
	}
	for st := range p.pending() {
		if !st.Step.GetAsync() || st.Step.GetDetached() || st.Refusal != nil {
			return false
		}
	}
	return true
}

// answers reports whether the scope works for another one and has its answer: a model
// has said it, which only has to be handed on. That belongs to what runs.
func (s *State) answers() bool {
	if s.Scope == "" || len(s.Steps) == 0 {
		return false
	}
	last := s.Steps[len(s.Steps)-1]
	return last.Done && last.Turn.GetText() != "" && len(last.Turn.GetToolCalls()) == 0
}
