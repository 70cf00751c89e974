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

// dispatch settles or starts what it can; of a paused run it ends what is canceled, and
// that is all. Where it has put something on record itself, there may be something new to
// decide, and more to settle.
func (p *process) dispatch(ctx context.Context) error {
	p.settled = false
	p.looked = p.run.Now() // once for all that begin now
	p.alarm, p.idling = time.Time{}, nil
	ready := p.ready[:0]
	waiting := false
	for st := range p.pending() {
		if _, busy := p.running[st.index]; busy {
			continue
		}
		if p.paused && ctx.Err() == nil && !st.closes(p.run) {
			continue
		}
		settled, err := p.settleAlone(ctx, st)
		switch {
		case err != nil:
			return err
		case settled:
			p.waits = false
			return nil
		case p.idling == st: // not asked once more: a task of its own may have ended in between
		case p.onlyWaits(st):
			waiting = true
		case ctx.Err() == nil:
			ready = append(ready, st)
		}
	}
	// A lone step runs right here: no goroutine, and nothing to merge with.
	if len(ready) == 1 && len(p.running) == 0 && !waiting && !p.goesOn(ready[0]) {
		p.waits, p.ready = false, ready
		return p.runner.Do(ctx, p.workOf(ctx, ready[0], p.passes))
	}
	p.ready = ready
	p.start(ctx, ready)
	p.settled = true
	return nil
}

// start starts steps side by side, as many as may run.
func (p *process) start(ctx context.Context, ready []*StepState) {
	members := p.busyMembers()
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

// busyMembers counts the members that work.
func (p *process) busyMembers() int {
	n := 0
	for _, st := range p.running {
		if st.ByMember() {
			n++
		}
	}
	return n
}

// goesOn reports whether there is more to decide while the step runs.
func (l *Loop) goesOn(st *StepState) bool {
	return l.traits.Interleaves && st.Step.GetAsync()
}

// idle takes note that a step waits for others that the loop answers itself.
func (p *process) idle(st *StepState, until time.Time) {
	p.idling = st
	if p.alarm.IsZero() || until.Before(p.alarm) {
		p.alarm = until
	}
}

// answer is what the scheduler answers a TOOL step itself.
func (p *process) answer(ctx context.Context, st *StepState) (*teamv1.ToolResult, time.Time) {
	if st.Step.GetKind() != teamv1.Step_KIND_TOOL || st.Refusal != nil {
		return nil, time.Time{}
	}
	return p.cfg.Scheduler.Answer(&p.State, st, Look{Now: p.run.Now(), Detached: p.detached(ctx)})
}

// answerAlone starts a step that the loop answers itself, and ends it when its
// answer is there.
func (p *process) answerAlone(ctx context.Context, st *StepState) (bool, error) {
	r, until := p.answer(ctx, st)
	switch {
	case r == nil && until.IsZero():
		return false, nil
	case !st.past.Open:
		return true, p.pass(p.runner.Event(st.Step, st.Scope, &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}}))
	case r == nil:
		p.idle(st, until)
		return false, nil
	}
	return true, p.end(st, &teamv1.Ended{
		Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Tool{Tool: r}, Spent: &teamv1.Spent{ToolCalls: 1},
	})
}

// settleAlone does for a step what needs no work: a refusal, a question to
// people, the end of a question, a cancel.
func (p *process) settleAlone(ctx context.Context, st *StepState) (bool, error) {
	switch {
	case p.run.Canceled(st.Scope):
		return true, p.abandon(ctx, st)
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
		err := agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "nobody answered the question of %q in time; send the message again, and answer sooner", p.cfg.ID)
		return true, p.end(st, step.EndedWith(err, teamv1.Outcome_OUTCOME_TIMED_OUT))
	case st.blocked() && st.clock.Waits().IsZero():
		return true, p.emitWaiting(st)
	case st.Step.GetKind() == teamv1.Step_KIND_TOOL && ctx.Err() == nil:
		return p.answerAlone(ctx, st)
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
	return p.runner.End(&step.Work{Step: st.Step, Scope: st.Scope, Emit: p.pass}, e)
}

func (p *process) emitWaiting(st *StepState) error {
	return p.pass(p.runner.Event(st.Step, st.Scope, &teamv1.Event{Kind: &teamv1.Event_Waiting{Waiting: &teamv1.Waiting{Questions: st.past.Asked.IDs()}}}))
}

// askPeople puts a human step's question on record.
func (p *process) askPeople(st *StepState) error {
	if !st.past.Open {
		if err := p.pass(p.runner.Event(st.Step, st.Scope, &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})); err != nil {
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
		Question: id, Kind: kind, Roles: ask.GetRoles(),
		Message: &a2av1.Message{MessageId: id, Role: a2av1.Role_ROLE_AGENT, Parts: step.QuestionParts(ask)},
		Expires: timestamppb.New(p.run.Now().Add(expiry)),
	}
	return p.pass(p.runner.Event(st.Step, st.Scope, &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: q}}))
}

// onlyWaits reports whether there is nothing to do for a step but wait for people:
// one that waits for a canceled scope goes on.
func (p *process) onlyWaits(st *StepState) bool {
	return st.Parked() && !st.past.Asked.From(p.run.Canceled)
}
