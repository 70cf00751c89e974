package drive

import (
	"fmt"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// reach computes from the record what a cancel of a scope reached: every step
// below it that was open when the cancel was put on record.
type reach struct {
	scope string
	at    int64 // where the cancel stands
	order []*reached
	found map[string]*reached // of order, by scope, and what ended before the cancel
	spent *teamv1.Spent       // after the cancel
}

// reached is one step, as it was at the cancel and as it ended.
type reached struct {
	entry     *teamv1.Receipt_Entry
	step      *teamv1.Step
	model     string
	attempts  int32
	failed    bool            // the last attempt, and the next one has not begun
	questions map[string]bool // its own open ones
	decided   *teamv1.Decided // its last decision
	decides   bool            // it has steps of its own
	over      bool            // it ended before the cancel
	told      bool            // a peer's word on it is on record
}

// fold takes the events in order.
func (r *reach) fold(ev *teamv1.Event) {
	if !agent.Within(ev.GetScope(), r.scope) {
		return
	}
	x := r.found[ev.GetScope()]
	if d := ev.GetDecided(); d != nil && ev.GetSeq() < r.at {
		r.decide(ev, d)
	}
	switch {
	case x == nil || x.over:
	case ev.GetSeq() < r.at:
		x.before(ev)
	default:
		r.after(x, ev)
	}
}

// decide adds the steps of a decision.
func (r *reach) decide(ev *teamv1.Event, d *teamv1.Decided) {
	for _, s := range d.GetSteps() {
		scope, path := agent.Scope(ev.GetScope(), s.GetId()), ev.GetAgent()
		if agent.IsDelegation(s.GetKind()) {
			path += "/" + s.GetMember()
		}
		x := &reached{step: s, entry: &teamv1.Receipt_Entry{Scope: scope, Agent: path, Outcome: teamv1.Outcome_OUTCOME_CANCELED}}
		r.order = append(r.order, x)
		r.found[scope] = x
	}
}

// before folds an event of the step that stands before the cancel.
func (x *reached) before(ev *teamv1.Event) {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Decided:
		x.decided, x.decides = k.Decided, true
	case *teamv1.Event_Started:
		x.attempts, x.model, x.failed = k.Started.GetAttempt(), k.Started.GetModel(), false
	case *teamv1.Event_Retried:
		x.failed = true
		if k.Retried.GetFresh() {
			x.entry.RemoteTaskId = ""
		}
	case *teamv1.Event_Bound:
		x.entry.RemoteTaskId = k.Bound.GetTaskId()
	case *teamv1.Event_Asked:
		if x.questions == nil {
			x.questions = map[string]bool{}
		}
		x.questions[k.Asked.GetQuestion()] = true
	case *teamv1.Event_Answered:
		delete(x.questions, k.Answered.GetQuestion())
	case *teamv1.Event_Expired:
		clear(x.questions)
	case *teamv1.Event_Ended:
		x.over = true
	default:
	}
}

// after folds an event of the step that stands behind the cancel.
func (r *reach) after(x *reached, ev *teamv1.Event) {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Decided:
		x.decides = true
	case *teamv1.Event_Bound:
		x.entry.RemoteTaskId = k.Bound.GetTaskId()
	case *teamv1.Event_Ended:
		x.entry.Outcome = k.Ended.GetOutcome()
		r.hear(x, k.Ended.GetReceipt())
		if !x.decides && x.entry.GetRemoteTaskId() == "" {
			r.spend(ev.GetScope(), k.Ended.GetSpent())
		}
	default:
	}
}

// hear takes over what a peer has said of the step's task there.
func (r *reach) hear(x *reached, told *teamv1.Receipt) {
	for _, e := range told.GetEntries() {
		if e.GetScope() != x.entry.GetScope() {
			continue
		}
		x.told = true
		x.entry.RemoteTaskId, x.entry.LastAction = e.GetRemoteTaskId(), e.GetLastAction()
		x.entry.Confirmed, x.entry.Unconfirmed = e.GetConfirmed(), e.GetUnconfirmed()
		r.spend(e.GetScope(), e.GetSpentAfter())
	}
}

// spend adds what a leaf has spent after the cancel to it and to all above it.
func (r *reach) spend(scope string, spent *teamv1.Spent) {
	r.spent = agent.AddSpent(r.spent, spent)
	for ; scope != ""; scope = agent.Parent(scope) {
		if x := r.found[scope]; x != nil {
			x.entry.SpentAfter = agent.AddSpent(x.entry.GetSpentAfter(), spent)
		}
	}
}

// receipt returns what was found. own is what a peer has said that works for the
// canceled task itself.
func (r *reach) receipt(own *teamv1.Receipt) *teamv1.Receipt {
	out := &teamv1.Receipt{}
	for _, e := range own.GetEntries() {
		if e.GetScope() == r.scope {
			out.Entries = append(out.Entries, e)
			r.spent = agent.AddSpent(r.spent, e.GetSpentAfter())
		}
	}
	for _, x := range r.order {
		if x.over {
			continue
		}
		if x.entry.GetLastAction() == "" {
			x.entry.LastAction = x.lastAction()
		}
		x.entry.Unconfirmed = x.entry.GetUnconfirmed() || x.orphaned()
		out.Entries = append(out.Entries, x.entry)
	}
	out.SpentAfter = r.spent
	return out
}

// orphaned reports whether the step has a task at a peer that nobody could be
// asked to end.
func (x *reached) orphaned() bool {
	return x.entry.GetRemoteTaskId() != "" && !x.told && x.entry.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED
}

// lastAction says what the step did last before the cancel.
func (x *reached) lastAction() string {
	switch {
	case x.attempts == 0:
		return "not begun"
	case len(x.questions) > 0:
		return "waiting for an answer"
	case x.failed:
		return fmt.Sprintf("waiting to try again (attempt %d failed)", x.attempts)
	case x.decided != nil:
		return decision(x.decided)
	}
	action := "began to work"
	switch x.step.GetKind() {
	case teamv1.Step_KIND_MODEL:
		action = strings.TrimSpace("asked the model " + x.model)
	case teamv1.Step_KIND_TOOL:
		action = "called tool " + x.step.GetName()
	default:
		if x.entry.GetRemoteTaskId() != "" {
			action = "began to work as a remote task"
		}
	}
	if x.attempts > 1 {
		action += fmt.Sprintf(" (attempt %d)", x.attempts)
	}
	return action
}

// decision says what was decided.
func decision(d *teamv1.Decided) string {
	var members, others []string
	for _, s := range d.GetSteps() {
		switch s.GetKind() {
		case teamv1.Step_KIND_MODEL:
			others = append(others, "asked its model")
		case teamv1.Step_KIND_TOOL:
			others = append(others, "called tool "+s.GetName())
		case teamv1.Step_KIND_HUMAN:
			others = append(others, "asked people")
		default:
			members = append(members, s.GetMember())
		}
	}
	if members != nil {
		others = append([]string{"gave work to " + strings.Join(members, ", ")}, others...)
	}
	switch {
	case others != nil:
		return strings.Join(others, ", ")
	case d.GetAsk() != nil:
		return "asked people"
	case len(d.GetCancel()) > 0 && d.GetReply() == nil:
		return "canceled what it did not need"
	}
	return "answered"
}
