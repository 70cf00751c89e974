package agent

import teamv1 "github.com/agentteams/team-server/gen/team/v1"

// AddSpent returns the sum of two costs; nil is none. Neither is changed.
func AddSpent(a, b *teamv1.Spent) *teamv1.Spent {
	switch {
	case b == nil:
		return a
	case a == nil:
		return b
	}
	return &teamv1.Spent{
		InputTokens: sum(a.GetInputTokens(), b.GetInputTokens()), OutputTokens: sum(a.GetOutputTokens(), b.GetOutputTokens()),
		CostMicros: sum(a.GetCostMicros(), b.GetCostMicros()),
		ModelCalls: sum(a.GetModelCalls(), b.GetModelCalls()), ToolCalls: sum(a.GetToolCalls(), b.GetToolCalls()),
	}
}

// sum adds counts, which peers may have made up: negative ones are nothing.
func sum(a, b int64) int64 { return plus(max(a, 0), max(b, 0)) }

// BookedOn is what is gone of a budget by what is on record of a call: what was
// spent, and the parts that detached children took along. A step that is under way
// reserves its part again.
func BookedOn(recorded []*teamv1.Event) Cost {
	c, parts := CostOf(SpentOn(recorded)), map[string]Cost{}
	for _, ev := range recorded {
		switch k := ev.GetKind().(type) {
		case *teamv1.Event_Spawned:
			parts[ev.GetScope()] = CostOf(k.Spawned.GetBudget())
		case *teamv1.Event_Ended:
			c = c.plus(parts[ev.GetScope()])
		}
	}
	return c
}

// PartLimits are the limits of who took a part of a budget along, as it stands on
// record; nil is none.
func PartLimits(s *teamv1.Spent) *teamv1.Limits {
	c := NoLimit()
	if n := CostOf(s).Tokens; n > 0 {
		c.Tokens = n
	}
	if n := s.GetCostMicros(); n > 0 {
		c.Micros = n
	}
	return LimitsOf(c)
}

// SpentOn adds up what is on record of a call: what the leaves below it have cost
// that have ended, and attempts of others that failed. What is under way counts
// nothing.
func SpentOn(recorded []*teamv1.Event) *teamv1.Spent {
	deciders, failed := map[string]bool{}, map[string]*teamv1.Spent{}
	total := &teamv1.Spent{}
	for _, ev := range recorded {
		switch k := ev.GetKind().(type) {
		case *teamv1.Event_Decided:
			deciders[ev.GetScope()] = true
		case *teamv1.Event_Retried:
			failed[ev.GetScope()] = AddSpent(failed[ev.GetScope()], k.Retried.GetSpent())
		case *teamv1.Event_Ended:
			delete(failed, ev.GetScope()) // it has them in its sum
			if !deciders[ev.GetScope()] {
				total = AddSpent(total, k.Ended.GetSpent())
			}
		}
	}
	for _, spent := range failed {
		total = AddSpent(total, spent)
	}
	return total
}
