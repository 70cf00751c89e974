package drive

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// reach collects what the cancel of a scope reached: each step below the scope that was open when
// the cancel was recorded.
type reach struct {
	scope string              // the scope that was canceled
	order []*reached          // in the order in which the steps were decided
	found map[string]*reached // the steps in order, by scope
	spent *teamv1.Spent       // total spent after the cancel
}

// reached is one step that a cancel reached, with its last action before the cancel.
type reached struct {
	*journal.Node
	entry  *teamv1.Receipt_Entry
	action string
	told   bool // the end of the step holds the peer's receipt for it
}

// receiptOf returns the receipt for the cancel of a scope. events are those of the run in order,
// and at is the sequence number of the cancel. own is the receipt of a peer that works for the
// scope itself; nil without one.
func receiptOf(events []*teamv1.Event, scope string, at int64, own *teamv1.Receipt) *teamv1.Receipt {
	v := journal.New("", journal.Whole)
	r := &reach{scope: scope, found: map[string]*reached{}}
	i, _ := slices.BinarySearchFunc(events, at, func(ev *teamv1.Event, at int64) int { return cmp.Compare(ev.GetSeq(), at) })
	for _, ev := range events[:i] {
		v.Apply(ev)
	}
	r.open(v.Node(scope))
	for _, ev := range events[i:] {
		v.Apply(ev)
	}
	return r.receipt(own)
}

// open collects the steps below a node that have not ended, in the order in which they were
// decided.
func (r *reach) open(top *journal.Node) {
	if top == nil {
		return
	}
	top.Walk(func(n *journal.Node) {
		if n == top || n.End != nil {
			return
		}
		path := n.Path
		if !n.Delegated() {
			path = strings.TrimSuffix(path, "/"+n.Step.GetMember())
		}
		x := &reached{Node: n, entry: &teamv1.Receipt_Entry{Scope: n.Scope, Agent: path, Outcome: teamv1.Outcome_OUTCOME_CANCELED}, action: lastAction(n)}
		r.order = append(r.order, x)
		r.found[n.Scope] = x
	})
	slices.SortStableFunc(r.order, func(a, b *reached) int { return cmp.Compare(a.Seq, b.Seq) })
}

// close adds to a step how it has ended since the cancel, and what it spent.
func (r *reach) close(x *reached) {
	x.entry.RemoteTaskId = x.Bound.GetTaskId()
	if x.End == nil {
		return
	}
	x.entry.Outcome = x.End.GetOutcome()
	for _, e := range x.End.GetReceipt().GetEntries() { // the peer's own receipt for this step
		if e.GetScope() != x.Scope {
			continue
		}
		x.told = true
		x.entry.RemoteTaskId, x.entry.LastAction = e.GetRemoteTaskId(), e.GetLastAction()
		x.entry.Confirmed, x.entry.Unconfirmed = e.GetConfirmed(), e.GetUnconfirmed()
		r.spend(x.Scope, e.GetSpentAfter())
	}
	if len(x.Decisions) == 0 && x.entry.GetRemoteTaskId() == "" {
		r.spend(x.Scope, x.End.GetSpent())
	}
}

// spend adds what a step has spent after the cancel to the step and to all steps above it.
func (r *reach) spend(scope string, spent *teamv1.Spent) {
	r.spent = agent.AddSpent(r.spent, spent)
	for ; scope != ""; scope = agent.Parent(scope) {
		if x := r.found[scope]; x != nil {
			x.entry.SpentAfter = agent.AddSpent(x.entry.GetSpentAfter(), spent)
		}
	}
}

// receipt returns the receipt for the collected steps. own is as for receiptOf.
func (r *reach) receipt(own *teamv1.Receipt) *teamv1.Receipt {
	for _, x := range r.order {
		r.close(x)
	}
	out := &teamv1.Receipt{}
	for _, e := range own.GetEntries() {
		if e.GetScope() == r.scope {
			out.Entries = append(out.Entries, e)
			r.spent = agent.AddSpent(r.spent, e.GetSpentAfter())
		}
	}
	for _, x := range r.order {
		x.entry.LastAction = cmp.Or(x.entry.GetLastAction(), x.action)
		x.entry.Unconfirmed = x.entry.GetUnconfirmed() || x.orphaned()
		out.Entries = append(out.Entries, x.entry)
	}
	out.SpentAfter = r.spent
	return out
}

// orphaned reports whether the step was canceled while it has a task at a peer, without a receipt
// of the peer for that task.
func (x *reached) orphaned() bool {
	return x.entry.GetRemoteTaskId() != "" && !x.told && x.entry.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED
}

// lastAction describes the last action of a step.
func lastAction(n *journal.Node) string {
	if len(n.Attempts) == 0 {
		return "not begun"
	}
	last := n.Attempts[len(n.Attempts)-1]
	started := last.Started.GetStarted()
	switch {
	case slices.ContainsFunc(n.Asked, func(q *journal.Question) bool { return q.Closed == nil }):
		return "waiting for an answer"
	case last.Ended != nil:
		return fmt.Sprintf("waiting to try again (attempt %d failed)", started.GetAttempt())
	case len(n.Decisions) > 0:
		return decision(n.Decisions[len(n.Decisions)-1].GetDecided())
	}
	action := "began to work"
	switch n.Step.GetKind() {
	case teamv1.Step_KIND_MODEL:
		action = strings.TrimSpace("asked the model " + started.GetModel())
	case teamv1.Step_KIND_TOOL:
		action = "called tool " + n.Step.GetName()
	default:
		if n.Bound.GetTaskId() != "" {
			action = "began to work as a remote task"
		}
	}
	if started.GetAttempt() > 1 {
		action += fmt.Sprintf(" (attempt %d)", started.GetAttempt())
	}
	return action
}

// decision describes what was decided.
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
