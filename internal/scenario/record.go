package scenario

import (
	"cmp"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// record holds the events of a task and what the expectations refer to.
type record struct {
	*journal.View
	events    []*teamv1.Event
	questions []string // texts of all questions

	works     []*work // works of members at all levels; each precedes those it delegated
	decisions []*decision
	calls     int64 // number of model calls
	tools     int64 // number of tool calls
}

// work is a task that was given to a member.
type work struct {
	*journal.Node
	path  string // path of the member, relative to the team
	by    *decision
	given *a2av1.Message
	said  *a2av1.Message
}

// decision is a decision of the team's own scheduler.
type decision struct {
	*teamv1.Decided
	turn int // from 1: the number of decisions so far that gave work to members
}

func newRecord() *record { return &record{View: journal.New("", journal.Whole)} }

// add records an event.
func (r *record) add(task string, ev *teamv1.Event) {
	r.Root = cmp.Or(task, r.Root)
	r.events = append(r.events, ev)
	r.Apply(ev)
	if q := ev.GetAsked(); q != nil {
		r.questions = append(r.questions, agent.Text(q.GetMessage()))
	}
}

// settle derives works, decisions and counts from the events.
func (r *record) settle() {
	r.works, r.decisions, r.calls, r.tools = nil, nil, 0, 0
	by := map[string]*decision{} // by id of the steps that were decided
	for _, ev := range r.Top.Decisions {
		d := &decision{Decided: ev.GetDecided(), turn: 1}
		if n := len(r.decisions); n > 0 {
			d.turn = r.decisions[n-1].turn
			if r.decisions[n-1].givesWork() {
				d.turn++
			}
		}
		r.decisions = append(r.decisions, d)
		for _, s := range d.GetSteps() {
			by[s.GetId()] = d
		}
	}
	r.Top.Walk(func(n *journal.Node) {
		r.count(n)
		if !n.Delegated() {
			return
		}
		w := &work{Node: n, given: r.given(n), said: r.said(n)}
		if n.Parent == r.Top {
			w.by = by[n.Step.GetId()]
		}
		_, w.path, _ = strings.Cut(n.Path, "/") // remove the team
		r.works = append(r.works, w)
	})
}

// count counts the calls of models and tools.
func (r *record) count(n *journal.Node) {
	for _, a := range n.Attempts {
		switch n.Step.GetKind() {
		case teamv1.Step_KIND_MODEL:
			r.calls++
		case teamv1.Step_KIND_JUDGE:
			if a.Started.GetStarted().GetModel() != "" { // otherwise the judge is an expression or an agent
				r.calls++
			}
		case teamv1.Step_KIND_TOOL:
			r.tools++
		default: // members and people
		}
	}
}

// given returns the message that a member received, followed by the results that were passed to it.
func (r *record) given(n *journal.Node) *a2av1.Message {
	for _, a := range slices.Backward(n.Attempts) {
		if m := a.Started.GetStarted().GetInput().GetMessage(); m != nil {
			return m
		}
	}
	earlier := n.Step.GetInput().GetEarlier()
	if len(earlier) == 0 {
		return n.Given
	}
	parts := slices.Clone(n.Given.GetParts())
	for _, seq := range earlier {
		parts = append(parts, r.Text(seq).GetParts()...)
	}
	return &a2av1.Message{Parts: parts}
}

// said returns the message that a node ended with: a reply, a model turn or a transfer.
func (r *record) said(n *journal.Node) *a2av1.Message {
	switch e := n.End; {
	case e.GetTurn() != nil:
		return agent.NewMessage(e.GetTurn().GetText())
	case e.GetTransfer() != nil:
		return agent.NewMessage(e.GetTransfer().GetMessage())
	}
	return n.Reply
}

// givesWork reports whether the decision gave work to members.
func (d *decision) givesWork() bool {
	return slices.ContainsFunc(d.GetSteps(), func(s *teamv1.Step) bool { return agent.IsDelegation(s.GetKind()) && s.GetRefusal() == nil })
}

// ran reports whether the work was started rather than refused or skipped.
func (w *work) ran() bool { return w.Step.GetRefusal() == nil }

// top reports whether the work was given by the team itself rather than by a member.
func (w *work) top() bool { return w.by != nil }

// lists are the works of members that expectations list: those of the first level and of all levels that ran, those
// of the first level that are steps of a workflow, those that were skipped, and those that did not succeed.
type lists struct{ top, all, steps, skipped, failed []*work }

// lists returns the works that expectations list.
func (r *record) lists() (l lists) {
	for _, k := range r.works {
		if k.ran() {
			l.all = append(l.all, k)
		}
		if o := k.End.GetOutcome(); k.ran() && o != teamv1.Outcome_OUTCOME_SUCCEEDED && o != teamv1.Outcome_OUTCOME_EMPTY && o != teamv1.Outcome_OUTCOME_UNSPECIFIED {
			l.failed = append(l.failed, k)
		}
		switch {
		case !k.top():
		case k.ran():
			l.top = append(l.top, k)
			if k.Step.GetName() != "" {
				l.steps = append(l.steps, k)
			}
		case k.Step.GetRefusal().GetOutcome() == teamv1.Outcome_OUTCOME_SKIPPED:
			l.skipped = append(l.skipped, k)
		}
	}
	return l
}

// pathOf and stepOf return the names of works in lists.
func pathOf(k *work) string { return k.path }
func stepOf(k *work) string { return k.Step.GetName() }

// namesOf returns the names of works.
func namesOf(works []*work, word func(*work) string) []string {
	list := make([]string, len(works))
	for i, k := range works {
		list[i] = word(k)
	}
	return list
}

// ruled returns the rules that decided, and their decisions.
func (r *record) ruled() (rules []string, by []*decision) {
	for _, d := range r.decisions {
		if d.GetRule() != "" {
			rules, by = append(rules, d.GetRule()), append(by, d)
		}
	}
	return rules, by
}

// last returns the last work of an agent, or nil.
func (r *record) last(path string) *work {
	var found *work
	for _, w := range r.works {
		if w.path == path && w.ran() {
			found = w
		}
	}
	return found
}
