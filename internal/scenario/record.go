package scenario

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// record is what became of a message: the events of its task, and what is asked
// of them.
type record struct {
	root      string // id of the task
	team      string
	events    []*teamv1.Event
	works     []*work // of members at all levels, in the order of their scopes
	decisions []*decision
	calls     int64 // of models
	tools     int64
	questions []string
	open      []*teamv1.Asked
	ended     *teamv1.Ended
	answer    string
	texts     map[int64]*a2av1.Message
	inputs    map[string]*a2av1.Message // what each scope was given
	byScope   map[string]*work
	kinds     map[string]teamv1.Step_Kind
	seq       int64
	spent     *teamv1.Spent
}

// work is a piece of work that a member was given.
type work struct {
	scope string
	path  string // below the team
	step  *teamv1.Step
	by    *decision
	given *a2av1.Message
	ended *teamv1.Ended
	said  *a2av1.Message
}

// decision is a choice of the team's own scheduler.
type decision struct {
	*teamv1.Decided
	turn int // from 1: how many times work was given out before, and this one
}

func newRecord(team string) *record {
	return &record{
		team: team, texts: map[int64]*a2av1.Message{}, inputs: map[string]*a2av1.Message{},
		byScope: map[string]*work{}, kinds: map[string]teamv1.Step_Kind{},
	}
}

// add takes an event.
func (r *record) add(task string, ev *teamv1.Event) {
	r.root = cmp.Or(task, r.root)
	r.seq = max(r.seq, ev.GetSeq())
	r.events = append(r.events, ev)
	if m := agent.MessageOf(r.root, ev); m != nil {
		r.texts[ev.GetSeq()] = m
	}
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Accepted:
		r.inputs[ev.GetScope()] = k.Accepted.GetMessage()
	case *teamv1.Event_Decided:
		r.decided(ev, k.Decided)
	case *teamv1.Event_Started:
		r.started(ev.GetScope(), k.Started)
	case *teamv1.Event_Asked:
		r.questions = append(r.questions, agent.Text(k.Asked.GetMessage()))
		r.open = append(r.open, k.Asked)
	case *teamv1.Event_Answered:
		r.open = slices.DeleteFunc(r.open, func(q *teamv1.Asked) bool { return q.GetQuestion() == k.Answered.GetQuestion() })
	case *teamv1.Event_Ended:
		r.end(ev, k.Ended)
	}
}

func (r *record) decided(ev *teamv1.Event, d *teamv1.Decided) {
	var by *decision
	if ev.GetScope() == "" {
		by = &decision{Decided: d, turn: 1}
		if n := len(r.decisions); n > 0 {
			by.turn = r.decisions[n-1].turn
			if r.decisions[n-1].givesWork() {
				by.turn++
			}
		}
		r.decisions = append(r.decisions, by)
	}
	for _, step := range d.GetSteps() {
		scope := agent.Scope(ev.GetScope(), step.GetId())
		r.kinds[scope] = step.GetKind()
		r.inputs[scope] = r.given(ev.GetScope(), step.GetInput())
		if !agent.IsDelegation(step.GetKind()) {
			continue
		}
		w := &work{scope: scope, path: r.below(ev.GetAgent()), step: step, by: by, given: r.inputs[scope]}
		w.path = strings.TrimPrefix(w.path+"/"+step.GetMember(), "/")
		r.byScope[scope] = w
		at, _ := slices.BinarySearchFunc(r.works, w, func(a, b *work) int { return inOrder(a.scope, b.scope) })
		r.works = slices.Insert(r.works, at, w)
	}
}

// below is a path without the team that it begins with.
func (r *record) below(path string) string {
	_, rest, _ := strings.Cut(path, "/")
	return rest
}

// given is the message that a step is given.
func (r *record) given(scope string, in *teamv1.Input) *a2av1.Message {
	var m *a2av1.Message
	switch {
	case in.GetMessage() != nil:
		m = in.GetMessage()
	case in.GetRef() > 0:
		m = r.texts[in.GetRef()]
	default:
		m = r.inputs[scope]
	}
	if len(in.GetEarlier()) == 0 {
		return m
	}
	parts := slices.Clone(m.GetParts())
	for _, seq := range in.GetEarlier() {
		parts = append(parts, r.texts[seq].GetParts()...)
	}
	return &a2av1.Message{Parts: parts}
}

func (r *record) started(scope string, s *teamv1.Started) {
	switch r.kinds[scope] {
	case teamv1.Step_KIND_MODEL:
		r.calls++
	case teamv1.Step_KIND_JUDGE:
		if s.GetModel() != "" { // else it is a check, or an agent
			r.calls++
		}
	case teamv1.Step_KIND_TOOL:
		r.tools++
	default: // of members and people
	}
	if w := r.byScope[scope]; w != nil && s.GetInput().GetMessage() != nil {
		w.given = s.GetInput().GetMessage()
	}
}

func (r *record) end(ev *teamv1.Event, e *teamv1.Ended) {
	said := e.GetReply()
	if e.GetReplyRef() > 0 {
		said = r.texts[e.GetReplyRef()]
		r.texts[ev.GetSeq()] = said
	}
	switch {
	case e.GetTurn() != nil:
		said = r.texts[ev.GetSeq()]
	case e.GetTransfer() != nil:
		said = agent.NewMessage(e.GetTransfer().GetMessage())
	}
	if ev.GetScope() == "" {
		r.ended, r.answer, r.spent = e, agent.Text(said), e.GetSpent()
	}
	if w := r.byScope[ev.GetScope()]; w != nil {
		w.ended, w.said = e, said
	}
}

// givesWork reports whether members were chosen.
func (d *decision) givesWork() bool {
	return slices.ContainsFunc(d.GetSteps(), func(s *teamv1.Step) bool { return agent.IsDelegation(s.GetKind()) && s.GetRefusal() == nil })
}

// ran reports whether the work was not refused.
func (w *work) ran() bool { return w.step.GetRefusal() == nil }

// top reports whether the team itself gave the work out.
func (w *work) top() bool { return w.by != nil }

// inOrder compares scopes as they were decided: 2 comes before 10, and 2.1 behind 2.
func inOrder(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		n, _ := strconv.Atoi(x[i])
		m, _ := strconv.Atoi(y[i])
		if c := cmp.Compare(n, m); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}

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
