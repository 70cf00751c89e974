package team

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/guards"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// Loop asks a scheduler who is next and dispatches the answer until it replies, asks, or
// hits a limit. It implements all of an agent.Agent but Info and HealthCheck: teams and
// agents with a model embed it. Safe for concurrent use; runs share nothing.
type Loop struct {
	cfg    *Config
	noun   string // what people call what runs: agent or team
	traits Traits
	limits limits
	tools  map[string]agent.Tool
}

// NewLoop returns the loop of what c describes. noun is what people call it in messages:
// "team", "agent". c and its members are copied; what is not set takes its default. The
// error lists every fault of the configuration.
func NewLoop(noun string, c Config) (*Loop, error) {
	c.Members = slices.Clone(c.Members)
	for i := range c.Members {
		if c.Members[i].ID == "" {
			c.Members[i].ID = c.Members[i].Agent
		}
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(c.Members, func(a, b Member) int { return int(b.Priority) - int(a.Priority) })
	if c.Name == "" {
		c.Name = c.ID
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	l := &Loop{cfg: &c, noun: noun, traits: c.Scheduler.Traits(), tools: make(map[string]agent.Tool, len(c.Tools))}
	for _, t := range c.Tools {
		l.tools[t.Spec().Name] = t
	}
	l.limit(c.Limits)
	for _, w := range l.traits.Warnings {
		c.Log.Warn(w, zap.String(noun, c.ID))
	}
	return l, nil
}

func (l *Loop) limit(by *teamv1.Limits) {
	l.limits = effective(by)
	if l.traits.SetsTimeouts {
		l.limits.memberTimeout = 0
	}
}

// within is the loop as a call bounds it besides: by the time of its brief where its
// own is not set, and by what its caller lets run at once.
func (l *Loop) within(req *teamv1.ProcessRequest) *Loop {
	most, parallel := req.GetBrief().GetMaxDuration(), req.GetEnvelope().GetMaxParallel()
	if own := l.cfg.Limits.GetTimeout(); own != nil {
		most = own
	}
	if most == l.cfg.Limits.GetTimeout() && parallel == 0 {
		return l
	}
	c := *l
	setDuration(&c.limits.timeout, most) // members have deadlines of their own, which keep advancing while the run is paused
	if parallel > 0 {
		c.limits.maxParallel = min(c.limits.maxParallel, int(parallel))
	}
	return &c
}

// steps marks the agents that are loops: they are never called again as a
// whole, only the leaves below them are retried.
func (*Loop) steps() {}

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

// process is one call of Process. Only the goroutine that ranges over the
// sequence touches it; goroutines of parallel steps have its runner, which does not change
// while they run, and hand their events over in msgs.
type process struct {
	*Loop
	*fold
	req      *teamv1.ProcessRequest
	run      *agent.Run
	gate     *gate       // nil where nobody judges the result
	runner   step.Runner // shared with the goroutines of steps
	listener *agent.Listener
	yield    func(*teamv1.Event, error) bool

	stopped bool // the consumer broke off

	looked  time.Time          // when steps were begun last
	inbox   []*teamv1.Inbound  // taken, and not on record yet
	settled bool               // nothing can be settled or started before something comes from outside
	paused  bool               // the run, when next looked: what is unchecked must not be worked on by the phase it chose
	waits   bool               // the scheduler waits for the steps that run
	idling  *StepState         // that was last found to wait for others, and is answered by the loop itself
	alarm   time.Time          // until when a step idles that the loop answers itself; zero is none
	running map[int]*StepState // by index; steps that a goroutine works on
	msgs    chan stepMsg       // from those goroutines
	quit    chan struct{}      // closed when the loop ends: nobody takes msgs any more
	wg      sync.WaitGroup     // of those goroutines
	cancel  context.CancelCauseFunc
}

func newProcess(ctx context.Context, l *Loop, req *teamv1.ProcessRequest, run *agent.Run) *process {
	f := newFold(l, req, run.Root)
	return &process{Loop: l, fold: f, req: req, run: run, gate: gateOf(ctx, l.cfg, req), runner: step.Runner{
		Owner: guards.Owner{ID: l.cfg.ID, Path: f.Path, Run: run, Log: l.cfg.Log},
		Scope: f.Scope, Request: req, Guards: &l.cfg.Guards, Tools: step.Tools{Own: l.tools}, Upstreams: l.upstreams(),
		Silent: l.silent(), Wakes: l.traits.WakesOnDetachedEnd,
	}}
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
	case p.asked != "" && !busy:
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

// answers reports whether the scope works for another one and has its answer: a model
// has said it, which only has to be handed on. That belongs to what runs.
func (s *State) answers() bool {
	if s.Scope == "" || len(s.Steps) == 0 {
		return false
	}
	last := s.Steps[len(s.Steps)-1]
	return last.Done && last.Turn.GetText() != "" && len(last.Turn.GetToolCalls()) == 0
}

// over reports whether a context has ended, or is about to: its time has come and
// its timer is late.
func over(ctx context.Context) bool {
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
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
	roster, _ := p.askInfo(agent.WithDepth(ctx, depth)) // a circle ends when it is dispatched
	o := &teamv1.Observed{Members: roster}
	for i, m := range p.cfg.Members {
		roster[i].Health = p.health(&p.cfg.Members[i])
		if roster[i].GetInfo() == nil && !m.Disabled {
			if err := p.note("MEMBER_UNAVAILABLE", "member "+m.ID+" could not be asked what it does"); err != nil {
				return err
			}
		}
	}
	return p.emit("", &teamv1.Event{Kind: &teamv1.Event_Observed{Observed: o}})
}

func (p *process) note(code, text string) error {
	return p.emit("", &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: code, Text: text}}})
}

// clock applies the team's own timeout, counted from the scope's first recorded event.
// It does not advance while the run waits for people or is paused.
func (p *process) clock(ctx context.Context) (context.Context, context.CancelFunc) {
	start := p.started
	if start.IsZero() {
		start = p.run.Now()
	}
	now := p.run.Now()
	left := p.limits.timeout + p.run.Stood(&p.waited, start, now) - now.Sub(start)
	return p.run.WithTimeout(ctx, left, errTeamTimeout)
}

// errTeamTimeout: the team's own time ran out, not its caller's.
var errTeamTimeout = agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "the run's time ran out")

// mayDecide reports whether the scheduler is to be asked: nothing is open but
// asynchronous steps, and it does not wait for those. Before anybody is told of it
// what is refused has its end, and what becomes a task of its own has begun.
func (p *process) mayDecide() bool {
	if p.waits || p.asked != "" {
		return false
	}
	for st := range p.pending() {
		if !st.Step.GetAsync() || st.Step.GetDetached() || st.Refusal != nil {
			return false
		}
	}
	return true
}

// cause is the error that a context's end means for the run.
func (p *process) cause(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, agent.ErrShutdown), errors.Is(cause, agent.ErrFenced):
		return step.ErrStopped
	case errors.Is(cause, errTeamTimeout):
		if err := p.emit("", &teamv1.Event{Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: agent.LimitTimeout}}}); err != nil {
			return err
		}
		return agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout,
			"%s %q did not finish within %s (limits.timeout); raise it, or ask for less", p.noun, p.cfg.ID, p.limits.timeout)
	}
	return cause
}

// event completes an event of the scope, or of a step of it.
func (p *process) event(step string, ev *teamv1.Event) *teamv1.Event {
	ev.Scope, ev.Agent = p.Scope, p.Path
	if step != "" {
		ev.Scope = p.prefix + step
	}
	return ev
}

// emit yields an event of the scope, or of a step of it, and folds it.
func (p *process) emit(step string, ev *teamv1.Event) error {
	return p.pass(p.event(step, ev))
}

// pass yields an event as it is and folds it.
func (p *process) pass(ev *teamv1.Event) error {
	if p.stopped {
		return step.ErrStopped
	}
	if !p.yield(ev, nil) {
		p.stopped = true
		return step.ErrStopped
	}
	if ev.GetTime() == nil {
		ev.Time = timestamppb.New(p.run.Now())
	}
	p.apply(ev)
	return nil
}

// Parked reports whether a step waits for people and was not answered since.
func (st *StepState) Parked() bool { return !st.waiting.IsZero() || st.blocked() }

// onlyWaits reports whether there is nothing to do for a step but wait for people:
// one that waits for a canceled scope goes on.
func (p *process) onlyWaits(st *StepState) bool {
	return st.Parked() && !st.past.Asked.From(p.run.Canceled)
}
