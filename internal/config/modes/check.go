package modes

import (
	"cmp"
	"fmt"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/swarm"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// Known is what the file has beside a team.
type Known struct {
	// IsTeam reports whether an id is that of a team.
	IsTeam func(id string) bool
	// Presumed holds the agents that misspelled members were probably meant to be. Rules may name them, so that one
	// mistake causes one fault.
	Presumed []string
}

// Check reports what is wrong with a team, apart from names that the file does not define. at is the place of the team.
func Check(at source.Place, id string, t *teamv1.TeamConfig, known Known) {
	c := &check{at: at, id: id, team: t, known: known, complete: !at.At("members").Damaged()}
	c.members()
	c.instructions()
	checkLimits(at.At("limits"), t.GetLimits(), limitedBy(t))
	switch {
	case t.GetSupervisor() != nil:
		c.supervisor()
	case t.GetWorkflow() != nil:
		c.workflow()
	case t.GetCoordinator() != nil, t.GetRoute() != nil:
		c.coordinator()
	case t.GetSwarm() != nil:
		c.swarm()
	case t.GetLoop() != nil:
		_, err := supervisor.New(Supervisor(t))
		c.scheduler(err, c.complete, "loop")
	}
	for _, r := range Reviews(t) {
		if source := r.GetJudge().GetCheck(); source != "" {
			if _, err := expr.CompileCheck(source); err != nil {
				expression(at.At(r.Path...).At("judge", "check"), fmt.Sprintf("the judge of team %q", id), err, true)
			}
		}
	}
}

// check checks one team.
type check struct {
	at       source.Place
	id       string
	team     *teamv1.TeamConfig
	known    Known
	complete bool // all members are known
}

func (c *check) members() {
	seen := map[string]int{}
	for i, m := range c.team.GetMembers() {
		at := c.at.At("members", i)
		approveWhen(at.At("approve", "when"), m.GetApprove().GetWhen(), true)
		id := MemberID(m)
		if first, ok := seen[id]; ok {
			at.Fault(fmt.Sprintf("team %q has member %q twice", c.id, id), fmt.Sprintf("the first one is in line %d; give one of them another id", first))
		}
		seen[id] = at.Line()
		checkRetry(at.At("retry"), m.GetRetry())
		c.memberKeys(m, at)
		c.required(m, at.At("required"))
		c.acceptance(m, at.At("accept"))
	}
}

// memberKeys reports keys of a member that do not apply to the mode of its team.
func (c *check) memberKeys(m *teamv1.MemberConfig, at source.Place) {
	hasLeader, isSwarm := Leader(c.team) != nil, c.team.GetSwarm() != nil
	for _, f := range []struct {
		key, mode string
		wrong     bool
	}{
		{"skip_summarization", "coordinator", m.SkipSummarization != nil && !hasLeader}, //nolint:protogetter // set or not matters
		{"async", "coordinator", m.Async != nil && c.team.GetCoordinator() == nil},      //nolint:protogetter // set or not matters
		{"handoff", "swarm", len(m.GetHandoff()) > 0 && !isSwarm},
		{"handoff_after", "swarm", m.GetHandoffAfter() != "" && !isSwarm},
	} {
		if f.wrong {
			at.At(f.key).KeyFault(fmt.Sprintf("%s belongs to members of %s teams", f.key, f.mode), "remove it")
		}
	}
}

// required reports a required member that is disabled or that no rule or step can call.
func (c *check) required(m *teamv1.MemberConfig, at source.Place) {
	switch {
	case !m.GetRequired():
	case m.Enabled != nil && !m.GetEnabled(): //nolint:protogetter // unset is enabled
		at.KeyFault(fmt.Sprintf("member %q is required, but disabled", MemberID(m)), "enable it, or remove required")
	case !c.mayCall(MemberID(m)):
		at.KeyFault(fmt.Sprintf("member %q is required, but no rule or step of the team names it", MemberID(m)), "name it in one, or remove required")
	}
}

// mayCall reports whether a run of the team may call a member. A model may call any.
func (c *check) mayCall(member string) bool {
	s, w := c.team.GetSupervisor(), c.team.GetWorkflow()
	switch {
	case s != nil && s.GetRouter() == nil:
		return slices.ContainsFunc(s.GetRules(), func(r *teamv1.RuleConfig) bool { return slices.Contains(r.GetNext(), member) })
	case w != nil && w.GetPlan() == nil:
		calls := false
		Walk(w.GetSteps(), nil, func(s *teamv1.WorkflowStep, _ []any) { calls = calls || s.GetAgent() == member })
		return calls
	}
	return true
}

// acceptance reports an acceptance whose judge gives scores, and that has no threshold.
func (c *check) acceptance(m *teamv1.MemberConfig, at source.Place) {
	a, j := m.GetAccept(), m.GetAccept().GetJudge()
	if j != nil && j.GetModel()+j.GetAgent()+j.GetCheck()+j.GetSchema() == "" {
		return // reported as a judge that names nothing
	}
	leads := cmp.Or(LeaderModel(c.team), c.team.GetSupervisor().GetRouter().GetModel(), c.team.GetBroadcast().GetModel())
	if a != nil && a.Threshold == nil && j.GetCheck() == "" && j.GetSchema() == "" && (j.GetModel() != "" || j.GetAgent() != "" || leads != "") { //nolint:protogetter // 0 is a threshold
		at.KeyFault("accept.threshold is required when a model or an agent judges", "add threshold, the minimum score, 0 to 1, of a result that is accepted; for example 0.8")
	}
}

func (c *check) supervisor() {
	cfg := Supervisor(c.team)
	for _, m := range c.known.Presumed {
		cfg.Members = append(cfg.Members, team.Member{ID: m, Agent: m})
	}
	_, err := supervisor.New(cfg)
	c.scheduler(err, c.complete, "supervisor")
}

// workflow checks the steps, or how they are planned.
func (c *check) workflow() {
	if c.team.GetWorkflow().GetPlan() != nil {
		_, err := workflow.NewPlanned(Planned(c.team))
		c.scheduler(err, true, "workflow")
		return
	}
	steps, at := c.team.GetWorkflow().GetSteps(), c.at.At("workflow", "steps")
	if len(steps) == 0 {
		return // a rule reports it
	}
	if countSteps(steps) > maxSteps {
		if !at.Faulty() { // of the rule for the list alone
			at.Fault(fmt.Sprintf("a workflow has at most %d steps, with those in groups", maxSteps), "remove some, or move some to a team that is a member")
		}
		return
	}
	_, err := workflow.New(Workflow(c.team))
	c.scheduler(err, !at.Damaged(), "workflow")
}

// coordinator checks the leader and the names of the members, which the leader calls as tools.
func (c *check) coordinator() {
	c.sticky()
	for i, m := range c.team.GetMembers() {
		if MemberID(m) == c.id {
			c.at.At("members", i).Fault(fmt.Sprintf("member %q has the name of its team", c.id), "the leader uses this name; give the member an id of its own")
		}
	}
	key := "coordinator"
	if c.team.GetRoute() != nil {
		key = "route"
	}
	_, err := leader.NewCoordinator(Coordinator(c.team, nil))
	c.scheduler(err, c.complete, key)
}

// sticky reports sticky_owner in a team without memory, which cannot know who answered last, and in one
// with required members, which a follow-up would not call.
func (c *check) sticky() {
	if !c.team.GetCoordinator().GetStickyOwner() {
		return
	}
	at := c.at.At("coordinator", "sticky_owner")
	if c.team.Memory != nil && !c.team.GetMemory() { //nolint:protogetter // unset is on
		at.KeyFault("sticky_owner needs memory, which this team does not have", "remove memory: false, or sticky_owner")
	}
	if slices.ContainsFunc(c.team.GetMembers(), (*teamv1.MemberConfig).GetRequired) {
		at.KeyFault("sticky_owner excludes required members, because a follow-up calls only one member", "remove sticky_owner, or required")
	}
}

// swarm checks the entry member and the handoffs of a swarm.
func (c *check) swarm() {
	for i, m := range c.team.GetMembers() {
		if c.team.GetSwarm().GetStrictMembers() && c.known.IsTeam(m.GetAgent()) {
			c.at.At("members", i, "agent").Fault(fmt.Sprintf("team %q cannot be a member of swarm %q", m.GetAgent(), c.id),
				"make the team and the swarm members of a coordinator, or remove strict_members")
		}
	}
	_, err := swarm.New(Swarm(c.team))
	c.scheduler(err, c.complete, "swarm")
}
