package spending

import (
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// LostOn returns what is booked for an attempt with the given reservation if its end is not on
// record, because its process stopped: the reservation, marked as estimated, if the attempt was a
// call of a model. It returns nil for other attempts: members and tools continue the same work.
func LostOn(reserved *teamv1.Spent) *teamv1.Spent {
	if reserved.GetModelCalls() == 0 {
		return nil
	}
	return &teamv1.Spent{
		InputTokens: reserved.GetInputTokens(), OutputTokens: reserved.GetOutputTokens(), CostMicros: reserved.GetCostMicros(),
		ModelCalls: reserved.GetModelCalls(), Estimated: true,
	}
}

// WithTaskCost returns what is booked for a call of a: spent, which it has reported, and its cost of
// a task if it is a TaskPricer and has reported no cost. err is the failure of the call, or nil, and
// recorded are its events. A call that the peer is known to have refused costs nothing. A call that
// was canceled may have begun a task.
func WithTaskCost(a agent.Agent, spent *teamv1.Spent, err error, recorded []*teamv1.Event) *teamv1.Spent {
	p, ok := a.(agent.TaskPricer)
	if !ok || p.TaskCost() <= 0 || spent.GetCostMicros() > 0 {
		return spent
	}
	began := slices.ContainsFunc(recorded, func(ev *teamv1.Event) bool { return ev.GetBound() != nil })
	if e := agent.AsError(err); e != nil && e.Fresh && !began && e.Reason != agent.ReasonCanceled {
		return spent
	}
	return agent.AddSpent(spent, &teamv1.Spent{CostMicros: p.TaskCost()})
}

// BookedOn returns what the recorded events of a call have used of its budget: what was spent,
// and the parts that were given to detached tasks. Steps that have not ended are not included,
// because they reserve their part again when they continue.
func BookedOn(recorded []*teamv1.Event) agent.Cost {
	c, parts := agent.CostOf(SpentOn(recorded)), map[string]agent.Cost{}
	for _, ev := range recorded {
		switch k := ev.GetKind().(type) {
		case *teamv1.Event_Spawned:
			parts[ev.GetScope()] = agent.CostOf(k.Spawned.GetBudget())
		case *teamv1.Event_Ended:
			c = c.Plus(parts[ev.GetScope()])
		}
	}
	return c
}

// HeldOn returns the parts of the budget that the recorded events of a call have given to members on
// other servers that still work on them: they may have spent all of it. Calls of models are not
// included, see SpentOn, and neither are members that wait for people.
func HeldOn(recorded []*teamv1.Event) agent.Cost {
	open := map[string]*teamv1.Spent{}
	for _, ev := range recorded {
		switch k := ev.GetKind().(type) {
		case *teamv1.Event_Started:
			if s := k.Started.GetReserved(); s != nil && s.GetModelCalls() == 0 {
				open[ev.GetScope()] = s
			}
		case *teamv1.Event_Retried, *teamv1.Event_Ended, *teamv1.Event_Waiting:
			delete(open, ev.GetScope())
		}
	}
	c := agent.Cost{}
	for _, part := range open {
		c = c.Plus(agent.CostOf(part))
	}
	return c
}

// PartLimits returns the limits of a detached task that was given s as its part of the budget. It
// returns nil if there is no limit.
func PartLimits(s *teamv1.Spent) *teamv1.Limits {
	c := agent.NoLimit()
	if n := agent.CostOf(s).Tokens; n > 0 {
		c.Tokens = n
	}
	if n := s.GetCostMicros(); n > 0 {
		c.Micros = n
	}
	return LimitsOf(c)
}

// SpentOn returns what the recorded events of a call have spent: all steps that have ended and
// made no decisions of their own, and of steps that have not ended the attempts that failed or were
// interrupted.
func SpentOn(recorded []*teamv1.Event) *teamv1.Spent {
	total := &teamv1.Spent{}
	eachSpent(recorded, func(_ string, spent *teamv1.Spent) { total = agent.AddSpent(total, spent) })
	return total
}

// SpentOnOpen returns what the attempts of a step that has not ended have spent by the recorded events:
// those that failed or were interrupted, and the open one. It returns nil if that is nothing, and for a
// step that has made decisions: its cost is that of the steps below it.
func SpentOnOpen(recorded []*teamv1.Event, scope string) (spent *teamv1.Spent) {
	var own []*teamv1.Event
	for _, ev := range recorded {
		switch {
		case ev.GetScope() != scope:
		case ev.GetDecided() != nil:
			return nil
		default:
			own = append(own, ev)
		}
	}
	eachSpent(own, func(_ string, s *teamv1.Spent) { spent = agent.AddSpent(spent, s) })
	return spent
}

// SpentBy returns what BookedOn returns, by the path of the agent that spent it or, for a detached
// task, was given it. It is never nil.
func SpentBy(recorded []*teamv1.Event) map[string]agent.Cost {
	by, parts := map[string]agent.Cost{}, map[string]agent.Cost{}
	for _, ev := range recorded {
		switch k := ev.GetKind().(type) {
		case *teamv1.Event_Spawned:
			parts[ev.GetScope()] = agent.CostOf(k.Spawned.GetBudget())
		case *teamv1.Event_Ended:
			if c := parts[ev.GetScope()]; c != (agent.Cost{}) {
				by[ev.GetAgent()] = by[ev.GetAgent()].Plus(c)
			}
		}
	}
	eachSpent(recorded, func(path string, spent *teamv1.Spent) {
		if c := agent.CostOf(spent); c != (agent.Cost{}) {
			by[path] = by[path].Plus(c)
		}
	})
	return by
}

// eachSpent calls f with each amount that the recorded events of a call have spent, see SpentOn, and
// the path of the agent that spent it.
func eachSpent(recorded []*teamv1.Event, f func(path string, spent *teamv1.Spent)) {
	type attempts struct {
		path         string
		failed, open *teamv1.Spent // cost of the attempts that failed, and reservation of the open one
	}
	deciders, begun := map[string]bool{}, map[string]*attempts{}
	for _, ev := range recorded {
		switch k := ev.GetKind().(type) {
		case *teamv1.Event_Decided:
			deciders[ev.GetScope()] = true
		case *teamv1.Event_Started:
			a := begun[ev.GetScope()]
			if a == nil {
				a = &attempts{path: ev.GetAgent()}
				begun[ev.GetScope()] = a
			}
			a.failed, a.open = agent.AddSpent(a.failed, LostOn(a.open)), k.Started.GetReserved()
		case *teamv1.Event_Retried:
			a := begun[ev.GetScope()]
			if a == nil {
				a = &attempts{path: ev.GetAgent()}
				begun[ev.GetScope()] = a
			}
			a.failed, a.open = agent.AddSpent(a.failed, k.Retried.GetSpent()), nil
		case *teamv1.Event_Ended:
			delete(begun, ev.GetScope()) // the Ended event includes the other attempts
			if !deciders[ev.GetScope()] {
				f(ev.GetAgent(), k.Ended.GetSpent())
			}
		}
	}
	for _, a := range begun {
		f(a.path, agent.AddSpent(a.failed, LostOn(a.open)))
	}
}
