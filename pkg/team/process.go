package team

import (
	"context"
	"errors"
	"slices"
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
	*recorder
	req      *teamv1.ProcessRequest
	gate     *gate       // nil if results are not judged
	runner   step.Runner // shared with the goroutines of steps
	inbox    inbox
	mail     mail
	workers  workers
	idle     idle
	emitFunc func(*teamv1.Event) error // the method value p.emitEvent, allocated once

	startTime      time.Time    // time at which dispatch last started steps
	mustWait       bool         // nothing can be completed or started before an event arrives from outside
	paused         bool         // whether the run was paused when next chose the phase; the phase acts on this one reading
	schedulerWaits bool         // the scheduler chose to wait for the running steps
	ready          []*StepState // buffer of dispatch, reused
	cancel         context.CancelCauseFunc
}

func newProcess(ctx context.Context, l *Loop, req *teamv1.ProcessRequest, run *agent.Run) *process {
	f := newFold(l, req, run.Root)
	p := &process{Loop: l, recorder: &recorder{fold: f, run: run}, req: req, gate: gateOf(ctx, l.cfg, req), runner: step.Runner{
		Owner: guards.Owner{ID: l.guardOwner(), Path: f.Path, Run: run, Log: run.Logger(l.cfg.Log)},
		Scope: f.Scope, Request: req, Above: slices.Clip(append(slices.Clip(req.GetPath()), req.GetAgentId())), Guards: &l.cfg.Guards, Tools: step.Tools{Own: l.tools}, Upstreams: l.upstreams(),
		Silent: l.withholdsModelText(), Wakes: l.traits.WakesOnDetachedEnd, AcceptTruncated: l.cfg.AcceptTruncated,
	}}
	p.emitFunc = p.emitEvent
	return p
}

// recorder yields the events of a scope and its steps, and folds each of them.
type recorder struct {
	*fold
	run     *agent.Run
	asking  *spending.Budget // the run's own budget, if people may grant more to it
	yield   func(*teamv1.Event, error) bool
	stopped bool // the consumer ended the iteration
}

// event sets the scope and agent of an event of the scope itself, or of one of its steps.
func (r *recorder) event(step string, ev *teamv1.Event) *teamv1.Event {
	ev.Scope, ev.Agent = r.Scope, r.Path
	if step != "" {
		ev.Scope = r.prefix + step
	}
	return ev
}

// emit yields an event of the scope itself, or of one of its steps, and folds it.
func (r *recorder) emit(step string, ev *teamv1.Event) error {
	return r.emitEvent(r.event(step, ev))
}

// emitEvent yields an event unchanged and folds it.
func (r *recorder) emitEvent(ev *teamv1.Event) error {
	if r.stopped {
		return step.ErrStopped
	}
	if !r.yield(ev, nil) {
		r.stopped = true
		return step.ErrStopped
	}
	if ev.GetTime() == nil {
		ev.Time = timestamppb.New(r.run.Now())
	}
	r.apply(ev)
	r.actOnAnswers()
	return nil
}

// actOnAnswers raises the run's own limit by what people have granted, and allows the calls that they
// have allowed.
func (r *recorder) actOnAnswers() {
	if r.asking != nil {
		r.asking.Grant(r.takeGrant())
	}
	for _, key := range r.allowed {
		r.run.Allow(key)
	}
	r.allowed = nil
}

func (r *recorder) note(code, text string) error {
	return r.emit("", &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: code, Text: text}}})
}

// reply returns the last event of the sequence for a message.
func (r *recorder) reply(m *a2av1.Message) *teamv1.Reply {
	reply := &teamv1.Reply{Result: &teamv1.Reply_Message{Message: m}, Spent: r.spent(), Warnings: r.warnings}
	reply.Ref = r.texts.Refer(&teamv1.Input{}, m, r.Input).GetRef()
	if len(m.GetParts()) == 0 || agent.Text(m) == "" && prompt.OnlyText(m) {
		reply.Outcome = teamv1.Outcome_OUTCOME_EMPTY
	}
	return reply
}

// noResponse returns the error of a run that would end with an empty answer.
func (l *Loop) noResponse() error {
	return agent.Errorf(agent.CodeInternal, agent.ReasonNoResponse,
		"%s %q ended with an empty answer; say in the instructions what to answer, or set allow_empty: true", l.noun, l.cfg.ID)
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
