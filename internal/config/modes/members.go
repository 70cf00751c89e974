package modes

import (
	"cmp"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/team"
)

// MemberID returns the id of a member, which defaults to the id of its agent.
func MemberID(m *teamv1.MemberConfig) string {
	if m.GetId() != "" {
		return m.GetId()
	}
	return m.GetAgent()
}

// Review returns a review without the parts of its judge that have to be built: the model, the check
// and the schema. It returns nil for nil.
func Review(r *teamv1.ReviewConfig) *team.Review {
	if r == nil {
		return nil
	}
	return &team.Review{
		Agent: r.GetJudge().GetAgent(), Expected: r.GetExpected(), Threshold: r.Threshold, MaxRounds: int(r.GetMaxRounds()), //nolint:protogetter // nil means no threshold
	}
}

// Members returns the members of a team: those it lists, and in a workflow also the agents that
// steps name directly.
func Members(t *teamv1.TeamConfig) []team.Member {
	var out []team.Member
	seen := map[string]bool{}
	for _, m := range t.GetMembers() {
		seen[MemberID(m)] = true
		out = append(out, team.Member{
			ID: MemberID(m), Agent: m.GetAgent(), Role: m.GetRole(), Description: m.GetDescription(), Priority: m.GetPriority(),
			Disabled: m.Enabled != nil && !m.GetEnabled(), //nolint:protogetter // unset is enabled
			Timeout:  m.GetMemberTimeout().AsDuration(), Retry: m.GetRetry(), History: historyScopes[m.GetHistoryScope()],
			SkipSummarization: m.GetSkipSummarization() || t.GetRoute() != nil, Async: m.Async, //nolint:protogetter // unset is the coordinator's
			Handoff: m.GetHandoff(), HandoffAfter: m.GetHandoffAfter(), Approve: approveMember(m.GetApprove()), Accept: Review(m.GetAccept()),
			Required: m.GetRequired(), Output: m.GetOutput().GetName(), StreamInner: m.GetStreamInner(), HideText: m.InnerText != nil && !m.GetInnerText(), //nolint:protogetter // unset is shown
		})
	}
	Walk(t.GetWorkflow().GetSteps(), nil, func(s *teamv1.WorkflowStep, _ []any) {
		if id := s.GetAgent(); id != "" && !seen[id] {
			seen[id] = true
			out = append(out, team.Member{Agent: id})
		}
	})
	return out
}

// MemberIDs returns the ids of the members of a team.
func MemberIDs(t *teamv1.TeamConfig) []string {
	var ids []string
	for _, m := range Members(t) {
		ids = append(ids, cmp.Or(m.ID, m.Agent))
	}
	return ids
}

// maxSteps is the maximum number of steps of a workflow, with those in groups.
const maxSteps = 256

// countSteps returns the number of steps of a list, with those in groups.
func countSteps(steps []*teamv1.WorkflowStep) int {
	n := len(steps)
	for _, s := range steps {
		n += countSteps(s.GetParallel())
	}
	return n
}

// Walk calls visit for all steps and their paths, including steps within groups.
func Walk(steps []*teamv1.WorkflowStep, path []any, visit func(*teamv1.WorkflowStep, []any)) {
	for i, s := range steps {
		at := slices.Clip(append(slices.Clone(path), i))
		visit(s, at)
		Walk(s.GetParallel(), append(at, "parallel"), visit)
	}
}

// ListedReview is a review of a team, and its path within the team.
type ListedReview struct {
	*teamv1.ReviewConfig
	Path []any
}

// Reviews returns all reviews of a team that have a judge: of its own results, and of those of its
// members.
func Reviews(t *teamv1.TeamConfig) []ListedReview {
	all := []ListedReview{{t.GetReview(), []any{"review"}}}
	for i, m := range t.GetMembers() {
		all = append(all, ListedReview{m.GetAccept(), []any{"members", i, "accept"}})
	}
	return slices.DeleteFunc(all, func(r ListedReview) bool { return r.GetJudge() == nil })
}
