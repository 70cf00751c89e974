package leader

import (
	"fmt"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// left returns what a leader is told before a turn of what is left of the budget of its run, and of those above it; empty if the
// run has no budget, or if people may grant more. It depends only on steps that had ended when the turn
// was decided, so that earlier messages of a prompt never change.
func (l *leader) left(s *team.State, turn *team.StepState) string {
	limit := s.Limit
	if l.crew == nil || limit == (agent.Cost{}) || s.Team.Limits.GetOnLimit() == teamv1.OnLimit_ASK {
		return ""
	}
	var spent agent.Cost
	delegated := 0
	for _, st := range s.All() {
		if st == turn {
			break
		}
		if st.Done && st.EndIndex < turn.EndedBefore {
			spent = spent.Plus(agent.CostOf(st.Spent))
		}
		if st.ByMember() && st.Refusal == nil && st.Outcome != teamv1.Outcome_OUTCOME_REJECTED {
			delegated++
		}
	}
	var words []string
	if limit.Tokens != agent.Unlimited {
		words = append(words, fmt.Sprintf("%d tokens", max(limit.Tokens-spent.Tokens, 0)))
	}
	if limit.Micros != agent.Unlimited {
		words = append(words, fmt.Sprintf("%.4f USD", float64(max(limit.Micros-spent.Micros, 0))/1e6))
	}
	words = append(words, fmt.Sprintf("%d delegations", max(l.maxDelegated-delegated, 0)))
	return "\n\n[Left for this run: " + strings.Join(words, ", ") + "]"
}
