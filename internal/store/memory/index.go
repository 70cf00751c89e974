package memory

import (
	"sort"

	"github.com/tidwall/btree"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// entry is a listed task as of its last status change. It never changes; a new status makes a new
// entry.
type entry struct {
	at    int64 // status time, in nanoseconds since the Unix epoch
	id    string
	state a2av1.TaskState
	run   *run
}

// before orders entries by status time and then by id, both descending.
func before(a, b *entry) bool {
	if a.at != b.at {
		return a.at > b.at
	}
	return a.id > b.id
}

// tree holds entries in the order of before.
type tree = btree.BTreeG[*entry]

// group identifies a set of tasks that is kept in order: all tasks of an owner, or those with one
// agent, context or state.
type group struct {
	by    groupBy
	value string
	state a2av1.TaskState
}

// groupBy is the property that the tasks of a group share.
type groupBy uint8

const (
	byAll groupBy = iota
	byAgent
	byContext
	byState
)

// index holds the listed tasks of one owner, in order, for each group that is not empty.
type index map[group]*tree

// groups returns the groups that an entry belongs to.
func (e *entry) groups() [4]group {
	return [4]group{{by: byAll}, {by: byAgent, value: e.run.agent}, {by: byContext, value: e.run.context}, {by: byState, state: e.state}}
}

// add adds an entry to its groups.
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

// remove removes an entry from its groups.
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

// narrowest returns the smallest group that contains all tasks of a filter, nil if there are none.
// exact reports whether it contains no others, apart from the filter's time.
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

// matches reports whether a filter selects an entry, apart from the filter's time.
func (e *entry) matches(f a2a.Filter) bool {
	return (f.Agent == "" || f.Agent == e.run.agent) &&
		(f.ContextID == "" || f.ContextID == e.run.context) &&
		(f.State == a2av1.TaskState_TASK_STATE_UNSPECIFIED || f.State == e.state)
}

// count returns the number of tasks that a filter selects.
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

// scan calls visit for the entries that a filter selects, in order, until visit returns false. It
// begins after the entry after, or with the first one if that is nil.
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
