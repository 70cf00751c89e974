package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

var plainID = regexp.MustCompile(`^` + agent.IDPattern + `$`)

// team checks the references of a team and the configuration of its mode.
func (k *checker) team(id string, t *teamv1.TeamConfig) {
	k.members(id, t)
	k.limits(t.GetLimits(), limitedBy(t), "teams", id, "limits")
	switch {
	case t.GetSupervisor() != nil:
		k.supervisor(id, t)
	case t.GetWorkflow() != nil:
		k.workflow(id, t)
	case t.GetCoordinator() != nil, t.GetRoute() != nil:
		k.coordinator(id, t)
	case t.GetSwarm() != nil:
		k.swarm(id, t)
	}
	k.model(t.GetBroadcast().GetModel(), fmt.Sprintf("the broadcast of team %q", id), "teams", id, "broadcast", "model")
	for _, r := range reviews(id, t) {
		k.judge(id, r.GetJudge(), append(r.path, "judge"))
	}
}

// listedReview is a review of a team, and its place in the file.
type listedReview struct {
	*teamv1.ReviewConfig
	path []any
}

// reviews returns all reviews of a team that have a judge: of its own results, and of those of its
// members.
func reviews(id string, t *teamv1.TeamConfig) []listedReview {
	all := []listedReview{{t.GetReview(), []any{"teams", id, "review"}}}
	for i, m := range t.GetMembers() {
		all = append(all, listedReview{m.GetAccept(), []any{"teams", id, "members", i, "accept"}})
	}
	return slices.DeleteFunc(all, func(r listedReview) bool { return r.GetJudge() == nil })
}

// judge checks a judge of a team.
func (k *checker) judge(id string, j *teamv1.JudgeConfig, path []any) {
	path = slices.Clip(path)
	k.model(j.GetModel(), fmt.Sprintf("the judge of team %q", id), append(path, "model")...)
	if j.GetAgent() != "" {
		k.known(j.GetAgent(), fmt.Sprintf("the judge of team %q is", id), append(path, "agent")...)
	}
	if j.GetCheck() != "" {
		_, err := expr.CompileCheck(j.GetCheck())
		if err != nil {
			k.expression(fmt.Sprintf("the judge of team %q", id), err, true, append(path, "check")...)
		}
	}
}

func (k *checker) members(id string, t *teamv1.TeamConfig) {
	seen := map[string]int{}
	for i, m := range t.GetMembers() {
		path := []any{"teams", id, "members", i}
		k.approveWhen(m.GetApprove().GetWhen(), true, append(slices.Clone(path), "approve", "when")...)
		if m.GetAgent() != "" {
			k.memberAgent(id, m, append(path, "agent"))
		}
		n, _ := k.at(path...)
		if first, ok := seen[memberID(m)]; ok {
			k.fault(n, fmt.Sprintf("team %q has member %q twice", id, memberID(m)),
				fmt.Sprintf("the first one is in line %d; give one of them another id", first))
		}
		seen[memberID(m)] = k.line(n)
		k.retry(m.GetRetry(), append(path, "retry")...)
		k.memberKeys(t, m, path)
	}
}

// memberAgent checks the agent of a member. If a misspelled name resembles a defined agent, rules
// may refer to that agent as a member too, so that one mistake causes one fault.
func (k *checker) memberAgent(team string, m *teamv1.MemberConfig, path []any) {
	if k.known(m.GetAgent(), fmt.Sprintf("team %q has member", team), path...) {
		return
	}
	near := k.search(func() string {
		return nearest(m.GetAgent(), slices.Concat(sorted(k.Server.GetAgents()), sorted(k.Server.GetTeams())))
	})
	k.presumedMembers[team] = append(k.presumedMembers[team], near)
}

// memberID returns the id of a member, which defaults to the id of its agent.
func memberID(m *teamv1.MemberConfig) string {
	if m.GetId() != "" {
		return m.GetId()
	}
	return m.GetAgent()
}

func memberIDs(members []*teamv1.MemberConfig) []string {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = memberID(m)
	}
	return ids
}

func (k *checker) supervisor(id string, t *teamv1.TeamConfig) {
	path := []any{"teams", id, "supervisor"}
	k.model(t.GetSupervisor().GetRouter().GetModel(), fmt.Sprintf("the router of team %q", id), append(path, "router", "model")...)
	c := Supervisor(t)
	for _, m := range k.presumedMembers[id] {
		c.Members = append(c.Members, team.Member{ID: m, Agent: m})
	}
	_, err := supervisor.New(c)
	k.scheduler(err, !k.isDamaged("teams", id, "members"), path...)
}

// Supervisor returns the scheduler configuration of a supervisor team.
func Supervisor(t *teamv1.TeamConfig) supervisor.Config {
	s := t.GetSupervisor()
	c := supervisor.Config{Members: Members(t)}
	if s.GetRouter() != nil {
		c.Router = &supervisor.Router{Instructions: s.GetRouter().GetInstructions()}
	}
	for _, r := range s.GetRules() {
		c.Rules = append(c.Rules, supervisor.Rule{ID: r.GetId(), When: r.GetWhen(), Next: r.GetNext(), Finish: r.GetFinish(), Message: r.GetMessage()})
	}
	return c
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
		seen[memberID(m)] = true
		out = append(out, team.Member{
			ID: memberID(m), Agent: m.GetAgent(), Role: m.GetRole(), Description: m.GetDescription(), Priority: m.GetPriority(),
			Disabled: m.Enabled != nil && !m.GetEnabled(), //nolint:protogetter // unset is enabled
			Timeout:  m.GetMemberTimeout().AsDuration(), Retry: m.GetRetry(), History: historyScopes[m.GetHistoryScope()],
			SkipSummarization: m.GetSkipSummarization() || t.GetRoute() != nil, Async: m.Async, //nolint:protogetter // unset is the coordinator's
			Handoff: m.GetHandoff(), HandoffAfter: m.GetHandoffAfter(), Approve: approveMember(m.GetApprove()), Accept: Review(m.GetAccept()),
			Required: m.GetRequired(), StreamInner: m.GetStreamInner(), HideText: m.InnerText != nil && !m.GetInnerText(), //nolint:protogetter // unset is shown
		})
	}
	walk(t.GetWorkflow().GetSteps(), nil, func(s *teamv1.WorkflowStep, _ []any) {
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

// workflow checks the agents that steps refer to, and the steps themselves; or how they are planned.
func (k *checker) workflow(id string, t *teamv1.TeamConfig) {
	path := []any{"teams", id, "workflow"}
	if plan := t.GetWorkflow().GetPlan(); plan != nil {
		k.model(plan.GetModel(), fmt.Sprintf("the leader of team %q", id), append(path, "plan", "model")...)
		_, err := workflow.NewPlanned(Planned(t))
		k.scheduler(err, true, path...)
		return
	}
	if len(t.GetWorkflow().GetSteps()) == 0 {
		return // a rule reports it
	}
	members := memberIDs(t.GetMembers())
	walk(t.GetWorkflow().GetSteps(), append(path, "steps"), func(s *teamv1.WorkflowStep, at []any) {
		if s.GetAgent() != "" && !slices.Contains(members, s.GetAgent()) {
			k.known(s.GetAgent(), fmt.Sprintf("step %q uses agent", s.GetId()), append(at, "agent")...)
		}
	})
	if countSteps(t.GetWorkflow().GetSteps()) > maxSteps {
		if n, _ := k.at(append(path, "steps")...); !k.hasFault(n) { // of the rule for the list alone
			k.fault(n, fmt.Sprintf("a workflow has at most %d steps, with those in groups", maxSteps), "remove some, or move some to a team that is a member")
		}
		return
	}
	_, err := workflow.New(Workflow(t))
	k.scheduler(err, !k.isDamaged(append(path, "steps")...), path...)
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

// walk calls visit for all steps and their paths, including steps within groups.
func walk(steps []*teamv1.WorkflowStep, path []any, visit func(*teamv1.WorkflowStep, []any)) {
	for i, s := range steps {
		at := slices.Clip(append(slices.Clone(path), i))
		visit(s, at)
		walk(s.GetParallel(), append(at, "parallel"), visit)
	}
}

// Workflow returns the scheduler configuration of a workflow team.
func Workflow(t *teamv1.TeamConfig) workflow.Config {
	return workflow.Config{Steps: workflowSteps(t.GetWorkflow().GetSteps())}
}

func workflowSteps(steps []*teamv1.WorkflowStep) []workflow.Step {
	var out []workflow.Step
	for _, s := range steps {
		step := workflow.Step{
			ID: s.GetId(), Member: s.GetAgent(), Task: s.GetTask(), After: s.GetAfter(), When: s.GetWhen(),
			Parallel: workflowSteps(s.GetParallel()), Quorum: int(s.GetQuorum()), Timeout: s.GetTimeout().AsDuration(), Retry: s.GetRetry(),
			Required: s.GetRequired(),
		}
		switch s.GetJoin() {
		case teamv1.Join_ALL:
			step.Join = workflow.JoinAll
		case teamv1.Join_ANY:
			step.Join = workflow.JoinAny
		case teamv1.Join_QUORUM:
			step.Join = workflow.JoinQuorum
		case teamv1.Join_DEFAULT_JOIN:
		}
		if r := s.GetRepeat(); r != nil {
			step.Repeat = &workflow.Repeat{Until: r.GetUntil(), Max: int(r.GetMax())}
		}
		if h := s.GetHuman(); h != nil {
			step.Human = &workflow.Human{Question: h.GetQuestion(), Options: h.GetOptions(), Roles: h.GetRoles()}
		}
		out = append(out, step)
	}
	return out
}
