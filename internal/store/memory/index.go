package memory

import (
	"sort"

	"github.com/tidwall/btree"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// entry is a listed task as its last status change left it. It never changes;
// a new status makes a new one.
type entry struct {
	at    int64 // of the status, in ns of the Unix epoch
	id    string
	state a2av1.TaskState
	run   *run
}

// before orders entries newest status first, then by falling id.
func before(a, b *entry) bool {
	if a.at != b.at {
		return a.at > b.at
	}
	return a.id > b.id
}

type tree = btree.BTreeG[*entry]

// group is a set of tasks that is kept in order: all of an owner, or those of
// one agent, context or state.
type group struct {
	by    groupBy
	value string
	state a2av1.TaskState
}

type groupBy uint8

const (
	byAll groupBy = iota
	byAgent
	byContext
	byState
)

// index holds the listed tasks of one owner, in order, for each group that has any.
type index map[group]*tree

// groups returns the groups of an entry.
func (e *entry) groups() [4]group {
	return [4]group{{by: byAll}, {by: byAgent, value: e.run.agent}, {by: byContext, value: e.run.context}, {by: byState, state: e.state}}
}

func (x index) add(e *entry) {
	for _, g := range e.groups() {
		t := x[g]
		if t == nil {
			t = btree.NewBTreeGOptions(before, btree.Options{NoLocks: true})
			x[g] = t
		}
		t.Set(e)
	}
}

func (x index) remove(e *entry) {
	for _, g := range e.groups() {
		t := x[g]
		if t == nil {
			continue
		}
		t.Delete(e)
		if t.Len() == 0 {
			delete(x, g)
		}
	}
}

// narrowest returns the smallest group that holds all tasks of a filter, nil
// when one of them is empty, and whether it holds no others, time apart.
func (x index) narrowest(f a2a.Filter) (t *tree, exact bool) {
	groups := []group{{by: byAll}}
	if f.Agent != "" {
		groups = append(groups, group{by: byAgent, value: f.Agent})
	}
	if f.ContextID != "" {
		groups = append(groups, group{by: byContext, value: f.ContextID})
	}
	if f.State != a2av1.TaskState_TASK_STATE_UNSPECIFIED {
		groups = append(groups, group{by: byState, state: f.State})
	}
	for _, g := range groups {
		switch n := x[g]; {
		case n == nil:
			return nil, true
		case t == nil || n.Len() <= t.Len():
			t = n
		}
	}
	return t, len(groups) <= 2
}

// matches reports whether a filter selects an entry, time apart.
func (e *entry) matches(f a2a.Filter) bool {
	return (f.Agent == "" || f.Agent == e.run.agent) &&
		(f.ContextID == "" || f.ContextID == e.run.context) &&
		(f.State == a2av1.TaskState_TASK_STATE_UNSPECIFIED || f.State == e.state)
}

// count returns how many tasks a filter selects.
func (x index) count(f a2a.Filter) int {
	t, exact := x.narrowest(f)
	if t == nil {
		return 0
	}
	if !exact {
		n := 0
		x.scan(f, nil, func(*entry) bool { n++; return true })
		return n
	}
	oldest := store.Oldest(f)
	return sort.Search(t.Len(), func(i int) bool {
		e, _ := t.GetAt(i)
		return e.at < oldest
	})
}

// scan visits what a filter selects after an entry, in order; nil is from the
// beginning.
func (x index) scan(f a2a.Filter, after *entry, visit func(*entry) bool) {
	t, _ := x.narrowest(f)
	if t == nil {
		return
	}
	oldest := store.Oldest(f)
	step := func(e *entry) bool {
		if e.at < oldest {
			return false
		}
		if !e.matches(f) || after != nil && !before(after, e) {
			return true
		}
		return visit(e)
	}
	if after == nil {
		t.Scan(step)
		return
	}
	t.Ascend(after, step)
}
