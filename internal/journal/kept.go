package journal

import (
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Kept is what a new run keeps of a run that has ended.
type Kept struct {
	// Events follow the first event of the journal of the new run. It continues from them like a run that was interrupted.
	Events []*teamv1.Event
	// Steps are the scopes of the steps that are kept as they have ended, with all below them. Repeated are those of the
	// steps that run again or, if they have steps of their own, continue.
	Steps, Repeated []string
}

// Errors of Keep.
var (
	// ErrReference means that an event that is kept refers to one that is not.
	ErrReference = errors.New("a result refers to an event that is not kept")
	// ErrDecided means that the run decided to fail although all of its steps are kept: it would decide so again.
	ErrDecided = errors.New("all of its steps would be kept, so that it would fail in the same way")
)

// Keep returns what a new run keeps of the events of a run that has ended, beginning with Accepted. It keeps
//
//   - all decisions but those that ended a scope,
//   - of steps that have succeeded or were skipped, and of those that have failed before a later decision of their scope,
//     which has dealt with it, all that readers and later steps need,
//   - of other steps that have steps of their own, the same of these,
//   - of other calls of tools, that they have begun, and their idempotency keys: what became of them is not known, so an
//     unsafe one is a question, and another one is repeated with its key,
//   - answers of people, except about budgets, and follow-up messages.
//
// What was spent, granted and reserved is removed: it belongs to the old run. So are commands, times and numbers of
// inputs, and an approval of all calls of a tool becomes one of the call that was asked about.
func Keep(events []*teamv1.Event) (Kept, error) {
	k := keeper{works: map[string]*work{}, numbers: map[int64]int64{1: 1}}
	for _, ev := range events {
		k.read(ev)
	}
	for _, scope := range k.order {
		w := k.works[scope]
		switch {
		case w.parent.continues() && w.settled():
			k.kept.Steps = append(k.kept.Steps, scope)
		case w.continues():
			k.kept.Repeated = append(k.kept.Repeated, scope)
		}
	}
	if !k.changes() {
		return Kept{}, ErrDecided
	}
	for _, ev := range events[1:] {
		if err := k.keep(ev); err != nil {
			return Kept{}, err
		}
	}
	return k.kept, nil
}

// keeper computes what is kept.
type keeper struct {
	works   map[string]*work
	order   []string        // scopes of steps in the order in which they were decided
	numbers map[int64]int64 // new sequence numbers by old ones
	kept    Kept
}

// work is a step, or the run itself.
type work struct {
	parent   *work        // nil for the run itself
	step     *teamv1.Step // nil for the run itself
	end      *teamv1.Ended
	endSeq   int64
	decides  bool            // it has steps of its own
	last     int64           // sequence number of its last decision that did not end it
	dropped  bool            // a decision has canceled it
	failed   bool            // it has decided to fail
	started  bool            // its start is kept
	answered map[string]bool // ids of its own questions that have an answer
	asked    map[string]teamv1.Asked_Kind
}

// of returns the work of a scope.
func (k *keeper) of(scope string) *work {
	w := k.works[scope]
	if w == nil {
		w = &work{answered: map[string]bool{}, asked: map[string]teamv1.Asked_Kind{}}
		if scope != "" {
			w.parent = k.of(scope[:max(strings.LastIndexByte(scope, '.'), 0)])
		}
		k.works[scope] = w
	}
	return w
}

// read notes what an event says of the work of its scope.
func (k *keeper) read(ev *teamv1.Event) {
	w := k.of(ev.GetScope())
	switch e := ev.GetKind().(type) {
	case *teamv1.Event_Decided:
		w.decides = true
		if !isLast(e.Decided) {
			w.last = ev.GetSeq()
		}
		w.failed = w.failed || e.Decided.GetFailure() != nil
		for _, s := range e.Decided.GetSteps() {
			scope := agent.Scope(ev.GetScope(), s.GetId())
			k.of(scope).step = s
			k.order = append(k.order, scope)
		}
		for _, id := range e.Decided.GetCancel() {
			k.of(agent.Scope(ev.GetScope(), id)).dropped = true
		}
	case *teamv1.Event_Ended:
		w.end, w.endSeq = e.Ended, ev.GetSeq()
	case *teamv1.Event_Asked:
		w.asked[e.Asked.GetQuestion()] = e.Asked.GetKind()
	case *teamv1.Event_Answered:
		w.answered[e.Answered.GetQuestion()] = true
	}
}

// isLast reports whether a decision ends its scope.
func isLast(d *teamv1.Decided) bool {
	return d.GetReply() != nil || d.GetTransfer() != nil || d.GetFailure() != nil
}

// settled reports whether a step is kept as it has ended.
func (w *work) settled() bool {
	if w.parent == nil || w.end == nil {
		return false
	}
	switch w.end.GetOutcome() {
	case teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY, teamv1.Outcome_OUTCOME_SKIPPED:
		return true
	default:
		return w.dropped || w.step.GetRefusal() != nil || w.endSeq < w.parent.last
	}
}

// continues reports whether the work is not kept as it has ended, nor is it part of such work.
func (w *work) continues() bool {
	for ; w != nil; w = w.parent {
		if w.settled() {
			return false
		}
	}
	return true
}

// changes reports whether anything of the run could end in another way than before: something runs again, or continues that
// has not decided to fail.
func (k *keeper) changes() bool {
	for _, w := range k.works {
		if w.continues() && !w.failed {
			return true
		}
	}
	return false
}

// keep adds an event to those that are kept, if it is.
func (k *keeper) keep(ev *teamv1.Event) error {
	w := k.of(ev.GetScope())
	if w.continues() && !w.goesOnWith(ev) || isOver(ev) {
		return nil
	}
	ev = proto.CloneOf(ev)
	k.clean(ev)
	if w.continues() {
		if s := ev.GetStarted(); s != nil {
			s.Attempt, w.started = 1, true
			if w.step.GetKind() != teamv1.Step_KIND_TOOL {
				s.Key = ""
			}
		}
	}
	if err := k.renumber(ev); err != nil {
		return err
	}
	k.kept.Events = append(k.kept.Events, ev)
	return nil
}

// isOver reports whether an event is of no use after the end of its run.
func isOver(ev *teamv1.Event) bool {
	switch ev.GetKind().(type) {
	case *teamv1.Event_Commanded, *teamv1.Event_Waiting, *teamv1.Event_Claimed, *teamv1.Event_Delta, *teamv1.Event_Progress:
		return true
	}
	return false
}

// goesOnWith reports whether work that continues does so from an event of its own.
func (w *work) goesOnWith(ev *teamv1.Event) bool {
	switch e := ev.GetKind().(type) {
	case *teamv1.Event_Started:
		return w.parent != nil && !w.started && (w.decides || w.step.GetKind() == teamv1.Step_KIND_TOOL)
	case *teamv1.Event_Decided:
		return !isLast(e.Decided)
	case *teamv1.Event_Received:
		return w.decides && !e.Received.GetTooLate()
	case *teamv1.Event_Checked:
		return w.decides && !e.Checked.GetBlocked() && (e.Checked.GetStage() == teamv1.Checked_STAGE_INPUT || e.Checked.GetStage() == teamv1.Checked_STAGE_DELEGATION)
	case *teamv1.Event_Asked:
		return w.decides && w.keepsQuestion(e.Asked.GetQuestion())
	case *teamv1.Event_Answered:
		return w.decides && w.keepsQuestion(e.Answered.GetQuestion())
	case *teamv1.Event_Noted:
		return w.decides && e.Noted.GetCode() == agent.NoteMessages
	}
	return false
}

// keepsQuestion reports whether the answer of people to a question is kept, which is not about a budget or a call.
func (w *work) keepsQuestion(id string) bool {
	return w.answered[id] && w.asked[id] != teamv1.Asked_KIND_BUDGET && w.asked[id] != teamv1.Asked_KIND_OUTCOME
}

// clean removes from an event what belongs to the old run alone.
func (k *keeper) clean(ev *teamv1.Event) {
	switch e := ev.GetKind().(type) {
	case *teamv1.Event_Started:
		e.Started.Reserved, e.Started.Deadline = nil, nil
	case *teamv1.Event_Retried:
		e.Retried.Spent, e.Retried.NotBefore = nil, nil
	case *teamv1.Event_Ended:
		e.Ended.Spent, e.Ended.Receipt, e.Ended.Budgets = nil, nil, nil
	case *teamv1.Event_Spawned:
		e.Spawned.Budget, e.Spawned.Budgets = nil, nil
	case *teamv1.Event_Received:
		e.Received.Inbound = 0
	case *teamv1.Event_Answered:
		e.Answered.Inbound, e.Answered.Grant, e.Answered.Waited = 0, nil, nil
		if e.Answered.GetApproval().GetDecision() == teamv1.Approval_DECISION_APPROVE_ALL {
			e.Answered.Approval.Decision = teamv1.Approval_DECISION_APPROVE
		}
	}
}

// renumber gives an event its new sequence number, and changes the numbers of those that it refers to.
func (k *keeper) renumber(ev *teamv1.Event) error {
	n := int64(len(k.kept.Events) + 2)
	k.numbers[ev.GetSeq()], ev.Seq = n, n
	var refs []*int64
	inputs := []*teamv1.Input{ev.GetStarted().GetInput(), ev.GetDecided().GetReply()}
	for _, s := range ev.GetDecided().GetSteps() {
		inputs = append(inputs, s.GetInput())
	}
	for _, in := range slices.DeleteFunc(inputs, func(in *teamv1.Input) bool { return in == nil }) {
		refs = append(refs, &in.Ref)
		for i := range in.GetEarlier() {
			refs = append(refs, &in.Earlier[i])
		}
	}
	if c := ev.GetChecked(); c != nil {
		refs = append(refs, &c.Ref)
	}
	if r, ok := ev.GetEnded().GetResult().(*teamv1.Ended_ReplyRef); ok {
		refs = append(refs, &r.ReplyRef)
	}
	for _, ref := range refs {
		if *ref == 0 {
			continue
		}
		var known bool
		if *ref, known = k.numbers[*ref]; !known {
			return ErrReference
		}
	}
	return nil
}
