package team

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// dispatch completes the steps that need no work and starts the others, as far as limits allow. In
// a paused run it only closes canceled steps. It returns as soon as it has recorded something,
// because that may call for a new decision or let it complete another step.
func (p *process) dispatch(ctx context.Context) error {
	p.mustWait = false
	p.startTime = p.run.Now() // one reading for all steps that start now
	p.idle = idle{}
	ready := p.ready[:0]
	waiting := false
	for st := range p.pending() {
		if p.workers.works(st) {
			continue
		}
		if p.paused && ctx.Err() == nil && !st.hasCanceled(p.run) {
			continue
		}
		handled, err := p.resolveWithoutWork(ctx, st)
		switch {
		case err != nil:
			return err
		case handled:
			p.schedulerWaits = false
			return nil
		case p.idle.last == st: // do not ask again: a detached task may have ended in between
		case st.waitsForPeople(p.run):
			waiting = true
		case ctx.Err() == nil:
			ready = append(ready, st)
		}
	}
	// A single step runs in this goroutine; there is nothing to run beside it.
	if len(ready) == 1 && len(p.workers.running) == 0 && !waiting && !p.decidesDuring(ready[0]) {
		p.schedulerWaits, p.ready = false, ready
		return p.runner.Do(ctx, p.workOf(ctx, ready[0], p.emitFunc))
	}
	p.ready = ready
	p.start(ctx, ready)
	p.mustWait = true
	return nil
}

// start starts ready steps in goroutines, at most limits.max_parallel members at a time.
func (p *process) start(ctx context.Context, ready []*StepState) {
	members := p.workers.members()
	for _, st := range ready {
		if st.ByMember() {
			if members >= p.limits.maxParallel {
				continue
			}
			members++
		}
		p.spawn(ctx, st, p.runner.Do)
	}
}

// decidesDuring reports whether the scheduler may have more to decide while the step runs.
func (l *Loop) decidesDuring(st *StepState) bool {
	return l.traits.Interleaves && st.Step.GetAsync()
}

// askAnswer asks the scheduler for the result of a TOOL step; see Scheduler.Answer.
func (p *process) askAnswer(ctx context.Context, st *StepState) (*teamv1.ToolResult, time.Time) {
	if st.Step.GetKind() != teamv1.Step_KIND_TOOL || st.Refusal != nil {
		return nil, time.Time{}
	}
	return p.cfg.Scheduler.Answer(&p.State, st, Look{Now: p.run.Now(), Detached: p.detached(ctx)})
}

// answerTool starts a TOOL step that the scheduler answers, and ends it once the answer is there.
// handled is true if it recorded something.
func (p *process) answerTool(ctx context.Context, st *StepState) (handled bool, err error) {
	r, until := p.askAnswer(ctx, st)
	switch {
	case r == nil && until.IsZero():
		return false, nil
	case !st.past.Open:
		return true, p.emitEvent(p.runner.Event(st.Step, st.Scope, &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}}))
	case r == nil:
		p.idle.add(st, until)
		return false, nil
	}
	return true, p.end(st, &teamv1.Ended{
		Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Tool{Tool: r}, Spent: &teamv1.Spent{ToolCalls: 1},
	})
}

// resolveWithoutWork handles what is left to do for a step without calling anything: a cancel, a
// refusal, an expired question, a question to people, or its answer. handled is true if it recorded
// something.
func (p *process) resolveWithoutWork(ctx context.Context, st *StepState) (handled bool, err error) {
	switch {
	case p.run.Canceled(st.Scope):
		return true, p.closeStep(ctx, st)
	case st.Refusal != nil:
		outcome := teamv1.Outcome_OUTCOME_REJECTED
		if r := st.Step.GetRefusal(); r != nil {
			outcome = r.GetOutcome()
		}
		if st.Step.GetKind() == teamv1.Step_KIND_TOOL && outcome == teamv1.Outcome_OUTCOME_REJECTED {
			if err := p.note("TOOL_CALL_IGNORED", st.Refusal.Message); err != nil {
				return false, err
			}
		}
		return true, p.end(st, step.EndedWith(st.Refusal, outcome))
	case st.expired:
		err := agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "the question of %q was not answered in time; send the message again, and answer sooner", p.cfg.ID)
		return true, p.end(st, step.EndedWith(err, teamv1.Outcome_OUTCOME_TIMED_OUT))
	case st.waitsForOwnAnswer() && st.clock.Waits().IsZero():
		return true, p.emitWaiting(st)
	case st.Step.GetKind() == teamv1.Step_KIND_TOOL && ctx.Err() == nil:
		return p.answerTool(ctx, st)
	case st.Step.GetKind() != teamv1.Step_KIND_HUMAN || st.Parked():
		return false, nil
	case st.Message != nil:
		return true, p.end(st, &teamv1.Ended{
			Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_ReplyRef{ReplyRef: st.seq},
		})
	}
	return true, p.askPeople(st)
}

// end records the end of a step that needs no work.
func (p *process) end(st *StepState, e *teamv1.Ended) error {
	return p.runner.End(&step.Work{Step: st.Step, Scope: st.Scope, Emit: p.emitEvent}, e)
}

func (p *process) emitWaiting(st *StepState) error {
	return p.emitEvent(p.runner.Event(st.Step, st.Scope, &teamv1.Event{Kind: &teamv1.Event_Waiting{Waiting: &teamv1.Waiting{Questions: st.past.Asked.IDs()}}}))
}

// askPeople records the question of a human step.
func (p *process) askPeople(st *StepState) error {
	if !st.past.Open {
		if err := p.emitEvent(p.runner.Event(st.Step, st.Scope, &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})); err != nil {
			return err
		}
	}
	ask := st.Step.GetAsk()
	kind := teamv1.Asked_KIND_INPUT
	if len(ask.GetOptions()) > 0 {
		kind = teamv1.Asked_KIND_APPROVAL
	}
	expiry := step.QuestionExpiry
	if t := st.Step.GetTimeout(); t != nil {
		expiry = t.AsDuration()
	}
	id := p.run.ID(st.Scope, "question", 1)
	q := &teamv1.Asked{
		Question: id, Kind: kind, Roles: ask.GetRoles(), Approval: ask.GetApproval(),
		Message: &a2av1.Message{MessageId: id, Role: a2av1.Role_ROLE_AGENT, Parts: step.QuestionParts(ask)},
		Expires: timestamppb.New(p.run.Now().Add(expiry)),
	}
	return p.emitEvent(p.runner.Event(st.Step, st.Scope, &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: q}}))
}

// waitsForPeople reports whether the step can do nothing but wait for people. A step that waits only
// for a canceled scope can continue.
func (st *StepState) waitsForPeople(run *agent.Run) bool {
	return st.Parked() && !st.past.Asked.From(run.Canceled)
}
