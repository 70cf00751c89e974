package cost

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// Book computes what each event of a run adds to the costs. Events must be applied in order, from the
// first. What all events add is what the end of the run says that it has spent, unless the steps have spent
// more than that; then it is what they have spent. A Book is not safe for concurrent use.
type Book struct {
	account string
	agent   string // that the task was sent to
	from    *teamv1.Detached
	steps   map[string]*step
	booked  *teamv1.Spent
}

// step is a step that has not ended, or the root.
type step struct {
	path, model string
	decides     bool          // the work is done by steps below it
	team        string        // path of the team, if the step is the work of a team
	reserved    *teamv1.Spent // of the open attempt
	booked      *teamv1.Spent // for its attempts so far
}

// NewBook returns the book of a run of an account before its first event.
func NewBook(account string) *Book { return &Book{account: account, steps: map[string]*step{}} }

// Apply returns what an event other than the end of the run adds.
func (b *Book) Apply(ev *teamv1.Event) []Sum {
	scope := ev.GetScope()
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Accepted:
		b.agent, b.from = ev.GetAgent(), k.Accepted.GetDetached()
	case *teamv1.Event_Noted:
		if k.Noted.GetCode() == agent.NoteTeamPrepared {
			b.step(scope, ev.GetAgent()).team = ev.GetAgent()
		}
	case *teamv1.Event_Decided:
		b.step(scope, ev.GetAgent()).decides = true
	case *teamv1.Event_Started:
		s := b.step(scope, ev.GetAgent())
		lost := b.add(ev, s, spending.LostOn(s.reserved))
		s.path, s.model, s.reserved = ev.GetAgent(), k.Started.GetModel(), k.Started.GetReserved()
		return lost
	case *teamv1.Event_Retried:
		s := b.step(scope, ev.GetAgent())
		s.reserved = nil
		return b.add(ev, s, k.Retried.GetSpent())
	case *teamv1.Event_Ended:
		return b.end(ev, k.Ended.GetSpent())
	}
	return nil
}

// step returns the step of a scope, which belongs to the agent with a path.
func (b *Book) step(scope, path string) *step {
	s := b.steps[scope]
	if s == nil {
		s = &step{path: path}
		b.steps[scope] = s
	}
	return s
}

// end returns what the end of a step adds: what its attempts cost beyond what was added before. The
// cost of a step that decides is that of the steps below it.
func (b *Book) end(ev *teamv1.Event, spent *teamv1.Spent) []Sum {
	scope := ev.GetScope()
	s := b.step(scope, ev.GetAgent())
	delete(b.steps, scope)
	if s.decides || scope == "" {
		return nil
	}
	return b.add(ev, s, agent.LessSpent(spent, s.booked))
}

// End returns what the end of the run adds. It changes nothing, so that it can be called again.
func (b *Book) End(ev *teamv1.Event) []Sum {
	left := agent.LessSpent(ev.GetEnded().GetSpent(), b.booked)
	var sums []Sum
	for _, scope := range slices.Sorted(maps.Keys(b.steps)) { // interrupted with the run
		lost := spending.LostOn(b.steps[scope].reserved)
		if lost != nil && agent.CostOf(left).Covers(agent.CostOf(lost)) && left.GetModelCalls() >= lost.GetModelCalls() {
			left = agent.LessSpent(left, lost)
			sums = b.sum(sums, ev, scope, b.steps[scope], lost)
		}
	}
	root := b.steps[""]
	if root == nil {
		root = &step{path: ev.GetAgent()}
	}
	return b.sum(sums, ev, "", root, left)
}

// add notes what an event adds for a step, and returns it.
func (b *Book) add(ev *teamv1.Event, s *step, spent *teamv1.Spent) []Sum {
	s.booked, b.booked = agent.AddSpent(s.booked, spent), agent.AddSpent(b.booked, spent)
	return b.sum(nil, ev, ev.GetScope(), s, spent)
}

// sum appends what was spent by a step, unless it is nothing.
func (b *Book) sum(to []Sum, ev *teamv1.Event, scope string, s *step, spent *teamv1.Spent) []Sum {
	a := AmountsOf(spent)
	if a == (Amounts{}) {
		return to
	}
	return append(to, Sum{Key{Hour: HourOf(ev.GetTime().AsTime()), Account: b.account, Path: s.path, Team: b.teamOf(scope), Model: s.model}, a})
}

// teamOf returns the team that the step of a scope works for: the nearest above it.
func (b *Book) teamOf(scope string) string {
	for {
		if s := b.steps[scope]; s != nil && s.team != "" {
			return teamOf(b.from, b.agent, s.team)
		}
		if scope == "" {
			return teamOf(b.from, b.agent, "")
		}
		scope = scope[:max(strings.LastIndexByte(scope, '.'), 0)]
	}
}

// teamOf returns the path of the team that a cost counts for. path is that of the nearest team above the
// cost in its task; it is empty if the cost arose outside of teams, and then counts for agentID, the agent
// that the task was sent to. The costs of a detached task count for the team that detached it, which from
// names, and for the teams below that.
func teamOf(from *teamv1.Detached, agentID, path string) string {
	above := from.GetTeam()
	switch {
	case above == "":
		return cmp.Or(path, agentID)
	case path == "":
		return above
	}
	return above + "/" + path
}

// Merge returns one sum for each key. change, which may be nil, changes the keys.
func Merge(sums []Sum, change func(*Key)) []Sum {
	by := map[Key]*Sum{}
	var all []*Sum
	for _, s := range sums {
		if change != nil {
			change(&s.Key)
		}
		if old := by[s.Key]; old != nil {
			old.Add(s.Amounts)
			continue
		}
		by[s.Key] = &s
		all = append(all, &s)
	}
	merged := make([]Sum, len(all))
	for i, s := range all {
		merged[i] = *s
	}
	slices.SortFunc(merged, func(a, b Sum) int { return a.compare(b.Key) })
	return merged
}

// compare orders keys.
func (k Key) compare(o Key) int {
	if k.Hour != o.Hour {
		return int(min(max(k.Hour-o.Hour, -1), 1))
	}
	return slices.Compare([]string{k.Account, k.Path, k.Team, k.Model}, []string{o.Account, o.Path, o.Team, o.Model})
}
