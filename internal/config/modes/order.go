package modes

import (
	"strconv"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// InListedOrder names steps without an id, and makes the order of a list of steps explicit, by setting after. A step without after
// follows the earlier steps that no other earlier step follows, except steps that depend on it.
// After the call, a step without after begins with the run, as in a stored definition.
func InListedOrder(steps []*teamv1.WorkflowStep) {
	if countSteps(steps) > maxSteps { // a fault
		return
	}
	nameSteps(steps)
	l := listed(steps)
	for i, entry := range steps {
		if len(entry.GetAfter()) > 0 {
			continue
		}
		entry.After = l.above(i, func(s *leaf) bool { return s.entry == i && s.from == entry })
	}
}

// listing holds the steps of a workflow; the steps of a group take the place of the
// group.
type listing struct {
	steps []*leaf
	named map[string][]*leaf // by the id of the step, or of the group that contains it
}

// leaf is a step that is not a group.
type leaf struct {
	step  *teamv1.WorkflowStep
	from  *teamv1.WorkflowStep // the step whose after applies: the step itself, or the nearest group with one
	entry int                  // index of the list entry that contains it
}

// listed returns the listing of steps.
func listed(steps []*teamv1.WorkflowStep) *listing {
	l := &listing{named: map[string][]*leaf{}}
	for i, entry := range steps {
		l.add(entry, entry, i)
	}
	return l
}

func (l *listing) add(s, from *teamv1.WorkflowStep, entry int) []*leaf {
	if len(s.GetAfter()) > 0 {
		from = s
	}
	var in []*leaf
	if len(s.GetParallel()) == 0 {
		one := &leaf{step: s, from: from, entry: entry}
		l.steps = append(l.steps, one)
		in = append(in, one)
	}
	for _, p := range s.GetParallel() {
		in = append(in, l.add(p, from, entry)...)
	}
	if s.GetId() != "" {
		l.named[s.GetId()] = in
	}
	return in
}

// before returns the direct predecessors of a step.
func (l *listing) before(s *leaf) []*leaf {
	var all []*leaf
	for _, id := range s.from.GetAfter() {
		all = append(all, l.named[id]...)
	}
	return all
}

// above returns the ids that an entry follows because of its position; inherit reports whether a
// step belongs to the entry and would follow them.
func (l *listing) above(entry int, inherit func(*leaf) bool) []string {
	waits := map[*leaf]bool{} // whether a step depends on a step of the entry
	var visit func(s *leaf) bool
	visit = func(s *leaf) bool {
		if is, seen := waits[s]; seen {
			return is
		}
		waits[s] = inherit(s)
		for _, b := range l.before(s) {
			if visit(b) {
				waits[s] = true
			}
		}
		return waits[s]
	}
	var candidates []*leaf
	followed := map[*leaf]bool{}
	for _, s := range l.steps {
		if s.entry < entry && s.step.GetId() != "" && !visit(s) {
			candidates = append(candidates, s)
			for _, b := range l.before(s) {
				followed[b] = true
			}
		}
	}
	var ids []string
	for _, s := range candidates {
		if !followed[s] {
			ids = append(ids, s.step.GetId())
		}
	}
	return ids
}

// nameSteps gives each step without an id that of its agent, or ask, with a number behind it if another step has that id.
func nameSteps(steps []*teamv1.WorkflowStep) {
	taken := map[string]bool{}
	Walk(steps, nil, func(s *teamv1.WorkflowStep, _ []any) { taken[s.GetId()] = true })
	Walk(steps, nil, func(s *teamv1.WorkflowStep, _ []any) {
		name := s.GetAgent()
		if s.GetHuman() != nil {
			name = "ask"
		}
		if s.GetId() != "" || name == "" {
			return
		}
		s.Id = name
		for n := 2; taken[s.GetId()]; n++ {
			s.Id = name + "_" + strconv.Itoa(n)
		}
		taken[s.GetId()] = true
	})
}
