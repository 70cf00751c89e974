package cost

import (
	"maps"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Book computes what each event of a run adds to the costs. Events must be applied in order, from the
// first. What all events add is what the end of the run says that it has spent, as long as the run has
// spent no more than its steps. A Book is not safe for concurrent use.
type Book struct {
	account string
	agent   string // that the task was sent to
	steps   map[string]*step
	booked  *teamv1.Spent
}

// step is a step that has not ended, or the root.
type step struct {
	path, model string
	decides     bool          // the work is done by steps below it
	team        string        // path of the team that it is; empty if it is none
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
		b.agent = ev.GetAgent()
	case *teamv1.Event_Noted:
		if k.Noted.GetCode() == agent.NoteTeamPrepared {
			b.step(scope, ev.GetAgent()).team = ev.GetAgent()
		}
	case *teamv1.Event_Decided:
		b.step(scope, ev.GetAgent()).decides = true
	case *teamv1.Event_Started:
		s := b.step(scope, ev.GetAgent())
		lost := b.add(ev, s, agent.LostOn(s.reserved))
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
	return b.add(ev, s, rest(spent, s.booked))
}

// End returns what the end of the run adds. It changes nothing, so that it can be called again.
func (b *Book) End(ev *teamv1.Event) []Sum {
	left := rest(ev.GetEnded().GetSpent(), b.booked)
	var sums []Sum
	for _, scope := range slices.Sorted(maps.Keys(b.steps)) { // interrupted with the run
		lost := agent.LostOn(b.steps[scope].reserved)
		if lost != nil && agent.CostOf(left).Covers(agent.CostOf(lost)) && left.GetModelCalls() >= lost.GetModelCalls() {
			left = rest(left, lost)
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

// teamOf returns the path of the team that the step of a scope works for: the nearest above it or, if
// there is none, the agent of the task.
func (b *Book) teamOf(scope string) string {
	for {
		if s := b.steps[scope]; s != nil && s.team != "" {
			return s.team
		}
		if scope == "" {
			return b.agent
		}
		scope = scope[:max(strings.LastIndexByte(scope, '.'), 0)]
	}
}

// rest returns a without b, at least 0.
func rest(a, b *teamv1.Spent) *teamv1.Spent {
	less := func(a, b int64) int64 { return max(a-b, 0) }
	return &teamv1.Spent{
		InputTokens: less(a.GetInputTokens(), b.GetInputTokens()), OutputTokens: less(a.GetOutputTokens(), b.GetOutputTokens()),
		CachedInputTokens: less(a.GetCachedInputTokens(), b.GetCachedInputTokens()), CacheWriteTokens: less(a.GetCacheWriteTokens(), b.GetCacheWriteTokens()),
		ReasoningTokens: less(a.GetReasoningTokens(), b.GetReasoningTokens()), CostMicros: less(a.GetCostMicros(), b.GetCostMicros()),
		ModelCalls: less(a.GetModelCalls(), b.GetModelCalls()), ToolCalls: less(a.GetToolCalls(), b.GetToolCalls()),
		Estimated: a.GetEstimated(), Claimed: a.GetClaimed(),
	}
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
