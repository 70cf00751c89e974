package team

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// loop asks a scheduler who is next and dispatches the answer until it replies,
// asks, or hits a limit. Teams and model-backed agents are made of it.
type loop struct {
	cfg    *Config
	limits limits
	tools  map[string]agent.Tool
}

func newLoop(c *Config, tools map[string]agent.Tool) loop {
	return loop{cfg: c, limits: effective(c.Limits), tools: tools}
}

// steps marks the agents that are loops: they are never called again as a
// whole, only the leaves below them are retried (events.md 3).
func (*loop) steps() {}

// Process implements agent.Agent.
func (l *loop) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		run := agent.From(ctx)
		p := &process{loop: l, req: req, run: run, yield: yield, fold: newFold(l.cfg, req, run.Root, l.limits.maxSteps)}
		p.serve(agent.With(ctx, p.run))
	}
}

// process is one call of Process. Only the goroutine that ranges over the
// sequence touches it; goroutines of parallel steps get copies and hand their
// events over in msgs.
type process struct {
	*loop
	*fold
	req      *teamv1.ProcessRequest
	run      *agent.Run
	listener *agent.Listener
	yield    func(*teamv1.Event, error) bool

	stopped bool // the consumer broke off
	inYield bool // control is with the consumer: a panic is its own

	waits   bool               // the scheduler waits for the steps that run
	running map[int]*StepState // by index; steps that a goroutine works on
	msgs    chan stepMsg       // from those goroutines
	quit    chan struct{}      // closed when the loop ends: nobody takes msgs any more
	wg      sync.WaitGroup     // of those goroutines
	cancel  context.CancelCauseFunc
}

// errStopped: the consumer broke off, or nothing more may be recorded.
var errStopped = errors.New("stopped")

// serve runs the loop and says how the sequence ends.
func (p *process) serve(ctx context.Context) {
	for _, ev := range p.req.GetRecorded() {
		p.apply(ev)
	}
	p.listener = p.run.Listen(p.Scope)
	defer p.listener.Close()
	ctx, p.cancel = context.WithCancelCause(ctx)
	defer p.cancel(errStopped)
	p.quit = make(chan struct{})
	defer p.wg.Wait()
	defer close(p.quit)
	defer p.cancel(errStopped) // before the wait: also when the consumer panics

	reply, err := p.work(ctx)
	if !errors.Is(err, errStopped) && (reply != nil || err != nil) {
		if cerr := p.closeSteps(ctx); cerr != nil {
			err = cerr
		}
	}
	switch {
	case p.stopped || errors.Is(err, errStopped):
	case err != nil:
		p.yield(nil, err)
	case reply != nil:
		p.yield(p.event("", &teamv1.Event{Kind: &teamv1.Event_Reply{Reply: reply}}), nil)
	}
}

// work is the loop itself. Neither a reply nor an error: parked.
func (p *process) work(ctx context.Context) (*teamv1.Reply, error) {
	ctx, stop := p.clock(ctx)
	defer stop()
	if ctx.Err() != nil {
		return nil, p.cause(ctx)
	}
	if err := p.prepare(ctx); err != nil {
		return nil, err
	}
	for {
		if ctx.Err() != nil && len(p.running) == 0 {
			return nil, p.cause(ctx)
		}
		if p.asked != "" && len(p.running) == 0 {
			return nil, nil
		}
		if err := p.takeInputs(); err != nil {
			return nil, err
		}
		if p.mayDecide() {
			if p.failed != nil && p.final == nil {
				return nil, p.failed
			}
			reply, err := p.decideNext()
			if reply != nil || err != nil {
				return reply, err
			}
			continue
		}
		progressed, err := p.dispatch(ctx)
		if err != nil {
			return nil, err
		}
		if progressed {
			continue
		}
		if len(p.running) == 0 {
			if ctx.Err() != nil {
				continue
			}
			return nil, nil // all that is open waits for people
		}
		if err := p.receive(); err != nil {
			return nil, err
		}
	}
}

// prepare puts the roster on record at the start of a run.
func (p *process) prepare(ctx context.Context) error {
	if len(p.cfg.Members) == 0 || len(p.Roster) > 0 {
		return nil
	}
	depth := int(p.req.GetDepth()) + 1
	if depth > p.limits.maxDepth {
		return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonMaxDepth,
			"team %q is nested deeper than %d levels (limits.max_depth), on the path %s", p.cfg.ID, p.limits.maxDepth, p.Path)
	}
	roster, _ := p.askInfo(agent.WithDepth(ctx, depth)) // a circle ends when it is dispatched
	o := &teamv1.Observed{Members: roster}
	for i, m := range p.cfg.Members {
		roster[i].Health = p.cfg.Registry.Health(m.Agent)
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

// clock bounds the run by the team's own timeout, which stands while the run
// waits for people: it counts from the scope's first event on record.
func (p *process) clock(ctx context.Context) (context.Context, context.CancelFunc) {
	start := p.started
	if start.IsZero() {
		start = p.run.Now()
	}
	left := p.limits.timeout + p.waited - p.run.Now().Sub(start)
	return context.WithTimeoutCause(ctx, left, errTeamTimeout)
}

// errTeamTimeout: the team's own time ran out, not its caller's.
var errTeamTimeout = agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "the run's time ran out")

// mayDecide reports whether the scheduler is to be asked: nothing is open but
// asynchronous steps, and it does not wait for those.
func (p *process) mayDecide() bool {
	if p.waits || p.asked != "" {
		return false
	}
	for _, st := range p.Open() {
		if !st.Step.GetAsync() {
			return false
		}
	}
	return true
}

// failure returns the error of a member's or human's step that did not succeed.
func (st *StepState) failure() *agent.Error {
	if !st.Done || !st.member() && st.Step.GetKind() != teamv1.Step_KIND_HUMAN {
		return nil
	}
	switch st.Outcome {
	case teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_TIMED_OUT, teamv1.Outcome_OUTCOME_REJECTED, teamv1.Outcome_OUTCOME_CANCELED:
		if st.Err == nil {
			return agent.Errorf(agent.CodeInternal, agent.ReasonDelegationFailed, "member %q failed", st.Step.GetMember())
		}
		return st.Err
	case teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY, teamv1.Outcome_OUTCOME_SKIPPED, teamv1.Outcome_OUTCOME_UNSPECIFIED:
	}
	return nil
}

// beyondLimit reports whether the step was refused by max_steps, which ends the
// run also where failures go to the scheduler (C-07).
func (st *StepState) beyondLimit() bool {
	return st.refusal != nil && st.refusal.Reason == agent.ReasonMaxIterations
}

// cause is the error that a context's end means for the run.
func (p *process) cause(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, agent.ErrShutdown), errors.Is(cause, agent.ErrFenced):
		return errStopped
	case errors.Is(cause, errTeamTimeout):
		if err := p.emit("", &teamv1.Event{Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: agent.LimitTimeout}}}); err != nil {
			return err
		}
		return agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout,
			"team %q did not finish within %s (limits.timeout)", p.cfg.ID, p.limits.timeout)
	}
	return cause
}

// decideNext asks the scheduler, unless its last word is on record already, and
// does what it says.
func (p *process) decideNext() (*teamv1.Reply, error) {
	if p.final == nil && p.asks == nil {
		if err := p.decideAnew(); err != nil {
			return nil, err
		}
	}
	switch {
	case p.final != nil:
		return p.reply(p.final), nil
	case p.asks != nil:
		return nil, p.ask(p.asks)
	}
	return nil, nil
}

// decideAnew asks the scheduler and records its answer.
func (p *process) decideAnew() error {
	d, err := p.next()
	if err != nil {
		return p.schedulerError(err)
	}
	if len(d.Steps) == 0 && d.Reply == nil && d.Ask == nil {
		if len(p.Open()) > 0 {
			p.waits = true
			return nil
		}
		return agent.Errorf(agent.CodeInternal, agent.ReasonNoResponse,
			"team %q ended without a response: no member has answered", p.cfg.ID)
	}
	return p.emit("", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: p.record(&d)}})
}

// next asks the scheduler. Its panic is its error: the steps that run get their ends.
func (p *process) next() (d Decision, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = agent.Errorf(agent.CodeInternal, agent.ReasonSchedulerError, "the scheduler of team %q crashed", p.cfg.ID).
				Because(agent.Panicked(p.cfg.Log, p.cfg.ID, r))
		}
	}()
	return p.cfg.Scheduler.Next(&p.State)
}

// schedulerError is the error of a scheduler as the run's (R-000-25).
func (p *process) schedulerError(err error) error {
	var e *agent.Error
	if errors.As(err, &e) {
		return e
	}
	return agent.Errorf(agent.CodeInternal, agent.ReasonSchedulerError, "the scheduler of team %q failed: %s", p.cfg.ID, err).Because(err)
}

// record returns a decision as it goes on record: steps numbered, texts that
// are on record already named by their sequence.
func (p *process) record(d *Decision) *teamv1.Decided {
	rec := &teamv1.Decided{
		Updates: d.Updates, Ask: d.Ask, Plan: d.Plan, Reason: d.Reason, Rule: d.Rule, Values: d.Values,
	}
	if d.Reply != nil {
		rec.Reply = p.refer(d.Reply)
	}
	if len(d.Steps) == 0 {
		return rec
	}
	rec.Steps = make([]*teamv1.Step, len(d.Steps))
	for i, s := range d.Steps {
		step := &teamv1.Step{
			Id: strconv.Itoa(len(p.Steps) + i + 1), Kind: s.GetKind(), Member: s.GetMember(), Async: s.GetAsync(),
			CallId: s.GetCallId(), Name: s.GetName(), Ask: s.GetAsk(), Timeout: s.GetTimeout(), Refusal: s.GetRefusal(),
		}
		switch {
		case s.GetInput().GetMessage() != nil:
			step.Input = p.refer(s.GetInput().GetMessage())
		case s.GetInput() != nil:
			step.Input = s.GetInput()
		case memberKind(s.GetKind()):
			step.Input = p.refer(p.Messages[len(p.Messages)-1])
		}
		rec.Steps[i] = step
	}
	return rec
}

// reply is the last event of the sequence.
func (p *process) reply(m *a2av1.Message) *teamv1.Reply {
	r := &teamv1.Reply{Result: &teamv1.Reply_Message{Message: m}, Spent: p.spent()}
	r.Ref = p.refer(m).GetRef()
	if len(m.GetParts()) == 0 || agent.Text(m) == "" && onlyText(m) {
		r.Outcome = teamv1.Outcome_OUTCOME_EMPTY
	}
	return r
}

func onlyText(m *a2av1.Message) bool {
	for _, part := range m.GetParts() {
		if _, ok := part.GetContent().(*a2av1.Part_Text); !ok {
			return false
		}
	}
	return true
}

// spent adds up what the steps cost.
func (p *process) spent() *teamv1.Spent {
	var sum *teamv1.Spent
	for _, st := range p.Steps {
		sum = addSpent(sum, st.Spent)
	}
	return sum
}

func addSpent(a, b *teamv1.Spent) *teamv1.Spent {
	switch {
	case b == nil:
		return a
	case a == nil:
		return b
	}
	return &teamv1.Spent{
		InputTokens: a.GetInputTokens() + b.GetInputTokens(), OutputTokens: a.GetOutputTokens() + b.GetOutputTokens(),
		CostMicros: a.GetCostMicros() + b.GetCostMicros(),
		ModelCalls: a.GetModelCalls() + b.GetModelCalls(), ToolCalls: a.GetToolCalls() + b.GetToolCalls(),
	}
}

// ask puts the scheduler's own question on record; the sequence then ends.
func (p *process) ask(m *a2av1.Message) error {
	q := &teamv1.Asked{
		Question: p.run.ID(p.Scope, "question", p.questions+1), Kind: teamv1.Asked_KIND_INPUT, Message: m,
		Expires: timestamppb.New(p.run.Now().Add(defaultQuestion)),
	}
	return p.emit("", &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: q}})
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
		return errStopped
	}
	p.inYield = true
	ok := p.yield(ev, nil)
	p.inYield = false
	if !ok {
		p.stopped = true
		return errStopped
	}
	if ev.GetTime() == nil {
		ev.Time = timestamppb.New(p.run.Now())
	}
	p.apply(ev)
	return nil
}

// takeInputs records what has arrived for the loop: follow-ups, and answers to
// questions below it, whose steps can then go on.
func (p *process) takeInputs() error {
	for _, in := range p.listener.Take() {
		ev := &teamv1.Event{Scope: in.GetScope(), Agent: p.Path}
		switch k := in.GetKind().(type) {
		case *teamv1.Inbound_Received:
			k.Received.Inbound = in.GetN()
			ev.Kind = &teamv1.Event_Received{Received: k.Received}
		case *teamv1.Inbound_Answered:
			k.Answered.Inbound = in.GetN()
			if !p.isOpen(k.Answered.GetQuestion()) {
				ev.Kind = &teamv1.Event_Received{Received: &teamv1.Received{Message: k.Answered.GetMessage(), TooLate: true, Inbound: in.GetN()}}
				break
			}
			p.waitedFor(in.GetScope(), k.Answered)
			ev.Kind = &teamv1.Event_Answered{Answered: k.Answered}
		default:
			continue
		}
		if err := p.pass(ev); err != nil {
			return err
		}
		p.waits = false
	}
	return nil
}

// isOpen reports whether a question of a step waits for its answer.
func (p *process) isOpen(question string) bool {
	return slices.ContainsFunc(p.Open(), func(st *StepState) bool { return st.asked.hold([]string{question}) })
}

// waitedFor notes in an answer how long the step it is for has waited.
func (p *process) waitedFor(scope string, a *teamv1.Answered) {
	for _, st := range p.Open() {
		if agent.Within(scope, st.scope) && !st.waiting.IsZero() {
			a.Waiter = st.scope
			a.Waited = durationpb.New(p.run.Now().Sub(st.waiting))
		}
	}
}

// blocked reports whether a step waits for the answer to its own question.
func (st *StepState) blocked() bool {
	return st.asked.from(func(scope string) bool { return scope == st.scope })
}

// parked reports whether a step waits for people and was not answered since.
func (st *StepState) parked() bool { return !st.waiting.IsZero() || st.blocked() }

// parked reports whether there is nothing to do for a step but wait for people:
// one that waits for a canceled scope goes on.
func (p *process) parked(st *StepState) bool { return st.parked() && !st.asked.from(p.run.Canceled) }
