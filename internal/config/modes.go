package config

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/swarm"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// Values of the configuration and the corresponding values of the schedulers.
var (
	historyScopes = map[teamv1.HistoryScope_Value]team.HistoryScope{
		teamv1.HistoryScope_LAST_RESULT: team.HistoryLastResult, teamv1.HistoryScope_PARENT_BRANCH: team.HistoryParent,
		teamv1.HistoryScope_ISOLATED: team.HistoryIsolated, teamv1.HistoryScope_CONVERSATION: team.HistoryConversation,
	}
	toolStyles = map[teamv1.ToolStyle_Value]leader.ToolStyle{
		teamv1.ToolStyle_PER_MEMBER: leader.PerMember, teamv1.ToolStyle_SINGLE: leader.Single,
	}
	openDelegations = map[teamv1.OpenDelegations_Value]leader.OpenDelegations{
		teamv1.OpenDelegations_WAIT: leader.WaitOpen, teamv1.OpenDelegations_CANCEL: leader.CancelOpen,
		teamv1.OpenDelegations_DETACH: leader.DetachOpen,
	}
	onLimits = map[teamv1.OnLimit_Value]leader.OnLimit{
		teamv1.OnLimit_FAIL: leader.FailRun, teamv1.OnLimit_FINALIZE: leader.Finalize,
	}
)

// Mode returns the mode of a team as clients see it. A team that routes is a coordinator team.
func Mode(t *teamv1.TeamConfig) string {
	switch {
	case t.GetSupervisor() != nil:
		return "supervisor"
	case Leader(t) != nil:
		return "coordinator"
	case t.GetSwarm() != nil:
		return "swarm"
	}
	return "workflow"
}

// PlannedStep is a step of a workflow as it is planned before the run.
type PlannedStep struct {
	ID, Member string   // an empty Member means that a person is asked
	After      []string // ids of the direct predecessors
	Task       string   // template of the member's input
	Timeout    time.Duration
}

// Plan returns the steps of a workflow in their order. A group is replaced by its steps.
func Plan(t *teamv1.TeamConfig) []PlannedStep {
	l := &listing{named: map[string][]*leaf{}}
	for i, s := range t.GetWorkflow().GetSteps() {
		l.add(s, s, i)
	}
	var plan []PlannedStep
	for _, s := range l.steps {
		p := PlannedStep{ID: s.step.GetId(), Member: s.step.GetAgent(), Task: s.step.GetTask(), Timeout: s.step.GetTimeout().AsDuration()}
		for _, b := range l.before(s) {
			p.After = append(p.After, b.step.GetId())
		}
		plan = append(plan, p)
	}
	return plan
}

// Planned returns the scheduler configuration of a workflow team whose model plans the steps.
func Planned(t *teamv1.TeamConfig) workflow.PlannedConfig {
	p := t.GetWorkflow().GetPlan()
	c := workflow.PlannedConfig{Instructions: p.GetInstructions(), Members: Members(t), MaxSteps: int(p.GetMaxSteps()), Limits: t.GetLimits()}
	if p.MaxRevisions != nil { //nolint:protogetter // 0 is a number of revisions
		n := int(p.GetMaxRevisions())
		c.MaxRevisions = &n
	}
	if a := p.GetApprove(); a != nil {
		c.Approve = &agent.Approvers{Roles: a.GetRoles(), Expires: a.GetExpires().AsDuration()}
	}
	return c
}

// Leader returns the configuration of the model that leads a coordinator team or routes requests,
// or nil if the team has no such model.
func Leader(t *teamv1.TeamConfig) *teamv1.LeaderConfig {
	if r := t.GetRoute(); r != nil {
		return &teamv1.LeaderConfig{Model: r.GetModel(), Instructions: r.GetInstructions()}
	}
	return t.GetCoordinator().GetLeader()
}

// leaderModel returns the model of the leader of a team: of a coordinator team, a team that routes, or
// one that plans its workflow. It is empty if the team has none.
func leaderModel(t *teamv1.TeamConfig) string {
	if plan := t.GetWorkflow().GetPlan(); plan != nil {
		return plan.GetModel()
	}
	return Leader(t).GetModel()
}

// Coordinator returns the scheduler configuration of a coordinator team. tools are the leader's
// tools. A team that routes is a coordinator team that calls one member by default and replies with
// that member's result.
func Coordinator(t *teamv1.TeamConfig, tools []agent.Tool) leader.CoordinatorConfig {
	c := t.GetCoordinator()
	cfg := leader.CoordinatorConfig{
		Instructions: Leader(t).GetInstructions(), Skills: Leader(t).GetSkills(), Members: Members(t), Tools: tools,
		AllowParallel: c.GetAllowParallel(), ToolStyle: toolStyles[c.GetToolStyle()], Async: c.GetAsync(),
		OpenDelegations: openDelegations[c.GetOnOpenDelegations()], OnLimit: onLimits[c.GetOnLimit()], StrictCycles: c.GetStrictCycles(),
		Wake: c.GetWakeOnCompletion(), StickyOwner: c.GetStickyOwner(),
		Limits: t.GetLimits(),
	}
	if t.GetRoute() != nil && t.GetLimits().GetMaxDelegations() == 0 {
		cfg.Limits = &teamv1.Limits{MaxDelegations: proto.Int32(1)}
		if n := t.GetLimits().GetMaxTurns(); n > 0 {
			cfg.Limits.MaxTurns = &n
		}
	}
	return cfg
}

// Swarm returns the scheduler configuration of a swarm.
func Swarm(t *teamv1.TeamConfig) swarm.Config {
	return swarm.Config{
		Entry: t.GetSwarm().GetEntryMember(), Members: Members(t), CrossRequest: t.GetSwarm().GetCrossRequestTransfer(), Limits: t.GetLimits(),
	}
}

// sticky reports sticky_owner in a team without memory, which cannot know who answered last, and in one
// with required members, which a follow-up would not call.
func (k *checker) sticky(id string, t *teamv1.TeamConfig) {
	if !t.GetCoordinator().GetStickyOwner() {
		return
	}
	n := k.keyAt("teams", id, "coordinator", "sticky_owner")
	if t.Memory != nil && !t.GetMemory() { //nolint:protogetter // unset is on
		k.fault(n, "sticky_owner needs memory, which this team does not have", "remove memory: false, or sticky_owner")
	}
	if slices.ContainsFunc(t.GetMembers(), (*teamv1.MemberConfig).GetRequired) {
		k.fault(n, "sticky_owner excludes required members, because a follow-up calls only one member", "remove sticky_owner, or required")
	}
}

// coordinator checks the leader and the names of the members, which the leader calls as tools.
func (k *checker) coordinator(id string, t *teamv1.TeamConfig) {
	k.sticky(id, t)
	path, at := []any{"teams", id, "coordinator"}, []any{"teams", id, "coordinator", "leader", "model"}
	if t.GetRoute() != nil {
		path, at = []any{"teams", id, "route"}, []any{"teams", id, "route", "model"}
	}
	k.model(Leader(t).GetModel(), fmt.Sprintf("the leader of team %q", id), at...)
	k.toolNames(Leader(t).GetTools(), fmt.Sprintf("the leader of team %q", id), "teams", id, "coordinator", "leader", "tools")
	for i, m := range t.GetMembers() {
		if memberID(m) == id {
			n, _ := k.at("teams", id, "members", i)
			k.fault(n, fmt.Sprintf("member %q has the name of its team", id), "the leader uses this name; give the member an id of its own")
		}
	}
	_, err := leader.NewCoordinator(Coordinator(t, nil))
	k.scheduler(err, !k.isDamaged("teams", id, "members"), path...)
}

// swarm checks the entry member and the handoffs of a swarm.
func (k *checker) swarm(id string, t *teamv1.TeamConfig) {
	for i, m := range t.GetMembers() {
		if t.GetSwarm().GetStrictMembers() && k.Server.GetTeams()[m.GetAgent()] != nil {
			n, _ := k.at("teams", id, "members", i, "agent")
			k.fault(n, fmt.Sprintf("team %q cannot be a member of swarm %q", m.GetAgent(), id),
				"make the team and the swarm members of a coordinator, or remove strict_members")
		}
	}
	_, err := swarm.New(Swarm(t))
	k.scheduler(err, !k.isDamaged("teams", id, "members"), "teams", id, "swarm")
}

// memberKeys reports keys of a member that do not apply to the mode of its team.
func (k *checker) memberKeys(t *teamv1.TeamConfig, m *teamv1.MemberConfig, path []any) {
	hasLeader, isSwarm := Leader(t) != nil, t.GetSwarm() != nil
	for _, f := range []struct {
		key, mode string
		wrong     bool
	}{
		{"skip_summarization", "coordinator", m.SkipSummarization != nil && !hasLeader}, //nolint:protogetter // set or not matters
		{"async", "coordinator", m.Async != nil && t.GetCoordinator() == nil},           //nolint:protogetter // set or not matters
		{"handoff", "swarm", len(m.GetHandoff()) > 0 && !isSwarm},
		{"handoff_after", "swarm", m.GetHandoffAfter() != "" && !isSwarm},
	} {
		if f.wrong {
			k.fault(k.keyAt(append(slices.Clone(path), f.key)...), fmt.Sprintf("%s belongs to members of %s teams", f.key, f.mode), "remove it")
		}
	}
	k.required(t, m, path)
	k.acceptance(t, m, path)
}

// acceptance reports an acceptance whose judge gives scores, and that has no threshold.
func (k *checker) acceptance(t *teamv1.TeamConfig, m *teamv1.MemberConfig, path []any) {
	a, j := m.GetAccept(), m.GetAccept().GetJudge()
	if j != nil && j.GetModel()+j.GetAgent()+j.GetCheck()+j.GetSchema() == "" {
		return // reported as a judge that names nothing
	}
	leads := cmp.Or(leaderModel(t), t.GetSupervisor().GetRouter().GetModel(), t.GetBroadcast().GetModel())
	if a != nil && a.Threshold == nil && j.GetCheck() == "" && j.GetSchema() == "" && (j.GetModel() != "" || j.GetAgent() != "" || leads != "") { //nolint:protogetter // 0 is a threshold
		k.fault(k.keyAt(append(slices.Clone(path), "accept")...), "accept.threshold is required when a model or an agent judges", "add threshold, the minimum score, 0 to 1, of a result that is accepted; for example 0.8")
	}
}

// required reports a required member that is disabled or that no rule or step can call.
func (k *checker) required(t *teamv1.TeamConfig, m *teamv1.MemberConfig, path []any) {
	at := append(slices.Clone(path), "required")
	switch {
	case !m.GetRequired():
	case m.Enabled != nil && !m.GetEnabled(): //nolint:protogetter // unset is enabled
		k.fault(k.keyAt(at...), fmt.Sprintf("member %q is required, but disabled", memberID(m)), "enable it, or remove required")
	case !mayCall(t, memberID(m)):
		k.fault(k.keyAt(at...), fmt.Sprintf("member %q is required, but no rule or step of the team names it", memberID(m)), "name it in one, or remove required")
	}
}

// mayCall reports whether a run of a team may call a member. A model may call any.
func mayCall(t *teamv1.TeamConfig, member string) bool {
	switch {
	case t.GetSupervisor() != nil && t.GetSupervisor().GetRouter() == nil:
		return slices.ContainsFunc(t.GetSupervisor().GetRules(), func(r *teamv1.RuleConfig) bool { return slices.Contains(r.GetNext(), member) })
	case t.GetWorkflow() != nil && t.GetWorkflow().GetPlan() == nil:
		calls := false
		walk(t.GetWorkflow().GetSteps(), nil, func(s *teamv1.WorkflowStep, _ []any) { calls = calls || s.GetAgent() == member })
		return calls
	}
	return true
}

// inherits reports whether an agent uses the model of its team's leader.
func inherits(a *teamv1.AgentConfig) bool {
	return a != nil && a.GetModel() == "" && a.GetScripted() == nil && a.GetGrpc() == nil && a.GetA2A() == nil
}

// inheritance reports used agents that have no model and cannot use that of a leader: they are a
// member of a team without a leader, or of no team.
func (k *checker) inheritance() {
	for _, id := range sorted(k.Server.GetAgents()) {
		if !k.Used[id] || !inherits(k.Server.GetAgents()[id]) || k.isDamaged("agents", id) || k.isDamaged("teams") {
			continue
		}
		led := false
		for _, team := range sorted(k.Server.GetTeams()) {
			t := k.Server.GetTeams()[team]
			if !slices.ContainsFunc(k.edges(team), func(e edge) bool { return e.to == id }) {
				continue
			}
			if led = Leader(t) != nil || t.GetWorkflow().GetPlan() != nil; !led {
				k.fault(k.keyAt("agents", id), fmt.Sprintf("agent %q has no model, and team %q has no leader whose model it could use", id, team), "add model: the name of one under models")
				break
			}
		}
		if !led && !slices.ContainsFunc(sorted(k.Server.GetTeams()), func(team string) bool {
			return slices.ContainsFunc(k.edges(team), func(e edge) bool { return e.to == id })
		}) {
			k.fault(k.keyAt("agents", id), fmt.Sprintf("agent %q has no model, and is not a member of a team whose leader has one", id), "add model: the name of one under models")
		}
	}
}
