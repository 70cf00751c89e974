package team

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/guards"
	"github.com/agentteams/team-server/pkg/team/internal/step"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// process is one call of Process. Only the goroutine that ranges over the sequence uses it. The
// goroutines of steps share its runner, which does not change while they run, and send their events
// over msgs.
type process struct {
	*Loop
	*fold
	req      *teamv1.ProcessRequest
	run      *agent.Run
	gate     *gate            // nil if results are not judged
	runner   step.Runner      // shared with the goroutines of steps
	asking   *spending.Budget // the run's own budget, if people may grant more to it
	listener *agent.Listener
	yield    func(*teamv1.Event, error) bool
	emitFunc func(*teamv1.Event) error // the method value p.emitEvent, allocated once

	stopped      bool // the consumer ended the iteration
	acknowledged int  // number of messages in Posted that are acknowledged

	startTime      time.Time          // time at which dispatch last started steps
	inbox          []*teamv1.Inbound  // messages taken from the listener that are not on record yet
	mustWait       bool               // nothing can be completed or started before an event arrives from outside
	paused         bool               // whether the run was paused when next chose the phase; the phase acts on this one reading
	schedulerWaits bool               // the scheduler chose to wait for the running steps
	idleStep       *StepState         // the step that was last found idle in dispatch
	wakeTime       time.Time          // wake-up time of the idle steps; zero if there is none
	ready          []*StepState       // buffer of dispatch, reused
	running        map[int]*StepState // steps that a goroutine works on, by index
	msgs           chan stepMsg       // events of those goroutines
	quit           chan struct{}      // closed when the loop ends and reads msgs no more
	wg             sync.WaitGroup     // counts those goroutines
	cancel         context.CancelCauseFunc
}

func newProcess(ctx context.Context, l *Loop, req *teamv1.ProcessRequest, run *agent.Run) *process {
	f := newFold(l, req, run.Root)
	p := &process{Loop: l, fold: f, req: req, run: run, gate: gateOf(ctx, l.cfg, req), runner: step.Runner{
		Owner: guards.Owner{ID: l.guardOwner(), Path: f.Path, Run: run, Log: run.Logger(l.cfg.Log)},
		Scope: f.Scope, Request: req, Above: slices.Clip(append(slices.Clip(req.GetPath()), req.GetAgentId())), Guards: &l.cfg.Guards, Tools: step.Tools{Own: l.tools}, Upstreams: l.upstreams(),
		Silent: l.withholdsModelText(), Wakes: l.traits.WakesOnDetachedEnd, AcceptTruncated: l.cfg.AcceptTruncated,
	}}
	p.emitFunc = p.emitEvent
	return p
}

// event sets the scope and agent of an event of the scope itself, or of one of its steps.
func (p *process) event(step string, ev *teamv1.Event) *teamv1.Event {
	ev.Scope, ev.Agent = p.Scope, p.Path
	if step != "" {
		ev.Scope = p.prefix + step
	}
	return ev
}

// emit yields an event of the scope itself, or of one of its steps, and folds it.
func (p *process) emit(step string, ev *teamv1.Event) error {
	return p.emitEvent(p.event(step, ev))
}

// emitEvent yields an event unchanged and folds it.
func (p *process) emitEvent(ev *teamv1.Event) error {
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
	p.actOnAnswers()
	return nil
}

// actOnAnswers raises the run's own limit by what people have granted, and allows the calls that they
// have allowed.
func (p *process) actOnAnswers() {
	if p.asking != nil {
		p.asking.Grant(p.takeGrant())
	}
	for _, key := range p.allowed {
		p.run.Allow(key)
	}
	p.allowed = nil
}

func (p *process) note(code, text string) error {
	return p.emit("", &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: code, Text: text}}})
}

// stepMsg is a message from the goroutine of a step to the loop: an event to record, or the end of
// the goroutine. The loop answers an event in ack.
type stepMsg struct {
	index int
	ev    *teamv1.Event
	ack   chan<- error
	done  bool
	err   error
}

// reply returns the last event of the sequence for a message.
func (p *process) reply(m *a2av1.Message) *teamv1.Reply {
	r := &teamv1.Reply{Result: &teamv1.Reply_Message{Message: m}, Spent: p.spent(), Warnings: p.warnings}
	r.Ref = p.texts.Refer(&teamv1.Input{}, m, p.Input).GetRef()
	if len(m.GetParts()) == 0 || agent.Text(m) == "" && prompt.OnlyText(m) {
		r.Outcome = teamv1.Outcome_OUTCOME_EMPTY
	}
	return r
}

// noResponse returns the error of a run that would end with an empty answer.
func (p *process) noResponse() error {
	return agent.Errorf(agent.CodeInternal, agent.ReasonNoResponse,
		"%s %q ended with an empty answer; say in the instructions what to answer, or set allow_empty: true", p.noun, p.cfg.ID)
}

// errTeamTimeout is the cause of a context that ended by the team's own timeout, not its caller's.
var errTeamTimeout = agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "the run's time ran out")

// cause returns the error of the run for a context that has ended.
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
			"%s %q did not finish within %s (%s); raise it, or ask for less", p.noun, p.cfg.ID, p.limits.timeout, NameOfLimit("timeout", p.cfg.Limits.GetTimeout() != nil))
	}
	return cause
}
