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
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/guards"
	"github.com/agentteams/team-server/pkg/team/internal/step"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

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
	passes   func(*teamv1.Event) error // is pass, for lone steps

	stopped bool // the consumer broke off

	looked  time.Time          // when steps were begun last
	inbox   []*teamv1.Inbound  // taken, and not on record yet
	settled bool               // nothing can be settled or started before something comes from outside
	paused  bool               // the run, when next looked: what is unchecked must not be worked on by the phase it chose
	waits   bool               // the scheduler waits for the steps that run
	idling  *StepState         // that was last found to wait for others, and is answered by the loop itself
	alarm   time.Time          // until when a step idles that the loop answers itself; zero is none
	ready   []*StepState       // that dispatch found last: room for the next ones
	running map[int]*StepState // by index; steps that a goroutine works on
	msgs    chan stepMsg       // from those goroutines
	quit    chan struct{}      // closed when the loop ends: nobody takes msgs any more
	wg      sync.WaitGroup     // of those goroutines
	cancel  context.CancelCauseFunc
}

func newProcess(ctx context.Context, l *Loop, req *teamv1.ProcessRequest, run *agent.Run) *process {
	f := newFold(l, req, run.Root)
	p := &process{Loop: l, fold: f, req: req, run: run, gate: gateOf(ctx, l.cfg, req), runner: step.Runner{
		Owner: guards.Owner{ID: l.cfg.ID, Path: f.Path, Run: run, Log: l.cfg.Log},
		Scope: f.Scope, Request: req, Above: slices.Clip(append(slices.Clip(req.GetPath()), req.GetAgentId())), Guards: &l.cfg.Guards, Tools: step.Tools{Own: l.tools}, Upstreams: l.upstreams(),
		Silent: l.silent(), Wakes: l.traits.WakesOnDetachedEnd,
	}}
	p.passes = p.pass
	return p
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

func (p *process) note(code, text string) error {
	return p.emit("", &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: code, Text: text}}})
}

// stepMsg is what a goroutine of a step tells the loop: an event that wants its
// place, or that the step is done.
type stepMsg struct {
	index int
	ev    *teamv1.Event
	ack   chan<- error
	done  bool
	err   error
}

// reply is the last event of the sequence.
func (p *process) reply(m *a2av1.Message) *teamv1.Reply {
	r := &teamv1.Reply{Result: &teamv1.Reply_Message{Message: m}, Spent: p.spent(), Warnings: p.warnings}
	r.Ref = p.texts.Refer(&teamv1.Input{}, m, p.Input).GetRef()
	if len(m.GetParts()) == 0 || agent.Text(m) == "" && prompt.OnlyText(m) {
		r.Outcome = teamv1.Outcome_OUTCOME_EMPTY
	}
	return r
}

// errTeamTimeout: the team's own time ran out, not its caller's.
var errTeamTimeout = agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "the run's time ran out")

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
