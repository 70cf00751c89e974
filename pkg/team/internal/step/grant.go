package step

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/forms"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// askForBudget returns the result of an attempt whose cost the budget does not cover. If people may
// grant more and have not declined, they are asked, and the step waits for the answer.
func (w *Work) askForBudget(err error) Result {
	var short *spending.Shortfall
	if w.Declined || !errors.As(err, &short) {
		return w.refused(err)
	}
	r := short.Request
	if r.GetLimit() == agent.LimitMaxTokens {
		r.Least, r.Most = r.GetLeast()+w.cost.besides.Tokens, w.cost.most.Tokens
	} else {
		r.Least, r.Most = r.GetLeast()+w.cost.besides.Micros, w.cost.most.Micros
	}
	res := w.ask(&teamv1.Asked{
		Kind: teamv1.Asked_KIND_BUDGET, Roles: short.Roles, Budget: r, Message: &a2av1.Message{Parts: agent.TextParts(budgetQuestion(r, w.by.described(w.Step, w.Target.Model), w.cost.besides != (agent.Cost{})))},
	}, 0)
	res.notStarted = true
	return res
}

// budgetQuestion returns the text of a question for more budget for a step. lastTurn says that the least includes what is
// kept for a last turn.
func budgetQuestion(r *teamv1.BudgetRequest, step string, lastTurn bool) string {
	var b strings.Builder
	amount := func(n int64) string { return forms.FormatAmount(r, n) }
	fmt.Fprintf(&b, "The limit %s of %q does not cover the next step. Of %s, %s are spent", r.GetLimit(), r.GetSetBy(), amount(r.GetValue()), amount(r.GetSpent()))
	if by := spenders(r); by != "" {
		b.WriteString(" (" + by + ")")
	}
	if r.GetReserved() > 0 {
		fmt.Fprintf(&b, " and %s are reserved", amount(r.GetReserved()))
	}
	fmt.Fprintf(&b, ". The next step, %s, needs at least %s", step, amount(r.GetLeast()))
	if lastTurn {
		b.WriteString(", with what is kept for a last turn,")
	}
	if r.GetMost() > 0 {
		fmt.Fprintf(&b, " and may cost at most %s", amount(r.GetMost()))
	}
	example := "2 USD"
	if r.GetLimit() == agent.LimitMaxTokens {
		example = "5000 tokens"
	}
	fmt.Fprintf(&b, ". How much may be added to the limit? Answer with an amount, such as %q, or with %q.", example, "no")
	return b.String()
}

// described describes a step in a question. model is what it calls; nil if it calls something else.
func (r *Runner) described(step *teamv1.Step, model agent.Model) string {
	switch {
	case step.GetKind() == teamv1.Step_KIND_JUDGE:
		return fmt.Sprintf("a judgement of %q", r.Path)
	case model != nil:
		return fmt.Sprintf("a call of model %q by %q", model.Name(), r.Path)
	}
	return fmt.Sprintf("a task for %q", r.path(step))
}

// maxSpenders is the maximum number of agents that a question for more budget names.
const maxSpenders = 5

// spenders names the agents that have spent most.
func spenders(r *teamv1.BudgetRequest) string {
	by := r.GetSpentBy()
	paths := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b))
	})
	var list []string
	for i, path := range paths {
		if i == maxSpenders {
			list = append(list, fmt.Sprintf("and %d others", len(paths)-i))
			break
		}
		list = append(list, path+" "+forms.FormatAmount(r, by[path]))
	}
	return strings.Join(list, ", ")
}
