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

// record is what became of a message: the events of its task, and what is asked
// of them.
type record struct {
	*journal.View
	events    []*teamv1.Event
	questions []string // all that were asked

	works     []*work // of members at all levels, each before those below it
	decisions []*decision
	calls     int64 // of models
	tools     int64
}

// work is a piece of work that a member was given.
type work struct {
	*journal.Node
	path  string // below the team
	by    *decision
	given *a2av1.Message
	said  *a2av1.Message
}

// decision is a choice of the team's own scheduler.
type decision struct {
	*teamv1.Decided
	turn int // from 1: how many times work was given out before, and this one
}

func newRecord() *record { return &record{View: journal.New("", journal.Whole)} }

// add takes an event.
func (r *record) add(task string, ev *teamv1.Event) {
	r.Root = cmp.Or(task, r.Root)
	r.events = append(r.events, ev)
	r.Apply(ev)
	if q := ev.GetAsked(); q != nil {
		r.questions = append(r.questions, agent.Text(q.GetMessage()))
	}
}

// settle computes what is asked of the events so far.
func (r *record) settle() {
	r.works, r.decisions, r.calls, r.tools = nil, nil, 0, 0
	by := map[string]*decision{} // of the team's own steps, by id
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
		_, w.path, _ = strings.Cut(n.Path, "/") // without the team that it begins with
		r.works = append(r.works, w)
	})
}

// count counts calls of models and tools.
func (r *record) count(n *journal.Node) {
	for _, a := range n.Attempts {
		switch n.Step.GetKind() {
		case teamv1.Step_KIND_MODEL:
			r.calls++
		case teamv1.Step_KIND_JUDGE:
			if a.Started.GetStarted().GetModel() != "" { // else it is a check, or an agent
				r.calls++
			}
		case teamv1.Step_KIND_TOOL:
			r.tools++
		default: // of members and people
		}
	}
}

// given is the message that a member was given, with the results that were handed over
// behind it.
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

// said is the message that a node ended with, in whatever form.
func (r *record) said(n *journal.Node) *a2av1.Message {
	switch e := n.End; {
	case e.GetTurn() != nil:
		return agent.NewMessage(e.GetTurn().GetText())
	case e.GetTransfer() != nil:
		return agent.NewMessage(e.GetTransfer().GetMessage())
	}
	return n.Reply
}

// givesWork reports whether members were chosen.
func (d *decision) givesWork() bool {
	return slices.ContainsFunc(d.GetSteps(), func(s *teamv1.Step) bool { return agent.IsDelegation(s.GetKind()) && s.GetRefusal() == nil })
}

// ran reports whether the work was not refused.
func (w *work) ran() bool { return w.Step.GetRefusal() == nil }

// top reports whether the team itself gave the work out.
func (w *work) top() bool { return w.by != nil }

// last is the last piece of work of an agent; nil is none.
func (r *record) last(path string) *work {
	var found *work
	for _, w := range r.works {
		if w.path == path && w.ran() {
			found = w
		}
	}
	return found
}
