package warnings

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/config/references"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// Worst is how much a run does at worst: when each limit is reached, and without attempts after errors, judges and
// further rounds of reviews.
type Worst struct {
	// Turns are answers of models, and Calls are calls of members, in the team and in the teams below it. They saturate.
	Turns, Calls int64
	// Paid says that the run may use models that cost money, as far as the file says.
	Paid bool
	// MaxCost is the limit of its cost in USD, nil without one.
	MaxCost *float64
}

// String returns a sentence for people.
func (w Worst) String() string {
	text := fmt.Sprintf("at worst %s of models and %s of members", counted(w.Turns, "turn"), counted(w.Calls, "call"))
	switch {
	case !w.Paid:
		return text
	case w.MaxCost == nil:
		return text + "; no limits.max_cost limits the cost of a run"
	}
	return text + ", within " + strconv.FormatFloat(*w.MaxCost, 'f', -1, 64) + " USD"
}

// counted writes a number of things.
func counted(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return count(n) + " " + thing
}

// count writes a number with a separator between thousands.
func count(n int64) string {
	if n >= math.MaxInt32 {
		return "billions of"
	}
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plus returns the sum of w and n times what a call of a member does.
func (w Worst) plus(n int64, member Worst) Worst {
	return Worst{add(w.Turns, times(n, member.Turns)), add(w.Calls, add(n, times(n, member.Calls))), w.Paid, w.MaxCost}
}

func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func times(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

// WorstOf returns what a run of an agent or team of a valid file does at worst.
func WorstOf(c *teamv1.ServerConfig, id string) Worst {
	if a := c.GetAgents()[id]; a != nil {
		if a.GetModel() == "" && a.GetInstructions() == "" {
			return Worst{}
		}
		return Worst{Turns: or(a.GetLimits().GetMaxTurns(), leader.DefaultTurns)}
	}
	t := c.GetTeams()[id]
	if t == nil {
		return Worst{}
	}
	w := worstOfTeam(c, t)
	w.Paid = slices.ContainsFunc(references.Reach(c, id), func(below string) bool { return paid(c, below) })
	if l := t.GetLimits(); l != nil {
		w.MaxCost = l.MaxCost //nolint:protogetter // 0 is a limit
	}
	return w
}

// paid reports whether an agent or team uses a model that costs money.
func paid(c *teamv1.ServerConfig, id string) bool {
	return slices.ContainsFunc(references.Models(c, id), func(name string) bool {
		m := c.GetModels()[name]
		free := m.GetPrice() != nil && proto.Equal(m.GetPrice(), &teamv1.Price{})
		return m != nil && m.GetProvider() != "scripted" && !free
	})
}

func worstOfTeam(c *teamv1.ServerConfig, t *teamv1.TeamConfig) Worst {
	var most, all Worst // of a call of one member, and of each once
	for _, m := range modes.Members(t) {
		one := WorstOf(c, m.Agent)
		most.Turns, most.Calls = max(most.Turns, one.Turns), max(most.Calls, one.Calls)
		all = all.plus(1, one)
	}
	limits, steps := t.GetLimits(), or(t.GetLimits().GetMaxSteps(), team.DefaultSteps)
	switch {
	case t.GetBroadcast() != nil:
		all.Turns = add(all.Turns, 1)
		return all
	case t.GetRoute() != nil:
		n := or(limits.GetMaxDelegations(), 1)
		return Worst{Turns: n + 1}.plus(n, most)
	case t.GetCoordinator() != nil:
		return Worst{Turns: or(limits.GetMaxTurns(), leader.DefaultTurns)}.plus(or(limits.GetMaxDelegations(), leader.DefaultDelegations), most)
	case t.GetWorkflow().GetPlan() != nil:
		plan := t.GetWorkflow().GetPlan()
		revisions := int64(1)
		if plan.MaxRevisions != nil { //nolint:protogetter // 0 is a number
			revisions = int64(plan.GetMaxRevisions())
		}
		return Worst{Turns: revisions + 2}.plus(min(steps, (revisions+1)*or(plan.GetMaxSteps(), workflow.DefaultPlanSteps)), most)
	case t.GetWorkflow() != nil:
		return worstOfSteps(c, t)
	case t.GetSwarm() != nil && limits.GetMaxHandoffs() > 0:
		steps = min(steps, int64(limits.GetMaxHandoffs())+1)
	case t.GetLoop() != nil:
		rounds, members := loopOf(t)
		steps = min(steps, rounds*members)
	case t.GetSupervisor().GetRouter() != nil:
		return Worst{Turns: steps}.plus(steps, most)
	}
	return Worst{}.plus(steps, most)
}

// worstOfSteps adds up the steps of a workflow.
func worstOfSteps(c *teamv1.ServerConfig, t *teamv1.TeamConfig) (w Worst) {
	agents := map[string]string{}
	for _, m := range t.GetMembers() {
		agents[modes.MemberID(m)] = m.GetAgent()
	}
	modes.Walk(t.GetWorkflow().GetSteps(), nil, func(s *teamv1.WorkflowStep, _ []any) {
		if s.GetAgent() == "" {
			return
		}
		id := s.GetAgent()
		if agents[id] != "" {
			id = agents[id]
		}
		w = w.plus(or(s.GetRepeat().GetMax(), 1), WorstOf(c, id))
	})
	return w
}

// or returns a limit, or its default if it is not set.
func or(limit int32, otherwise int64) int64 {
	if limit > 0 {
		return int64(limit)
	}
	return otherwise
}
