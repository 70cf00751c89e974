// Package modes has the modes of teams as the configuration file describes them: the configurations of their schedulers, and
// the checks of what the rules of the messages cannot see.
package modes

import (
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/swarm"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// Values of the file and the corresponding values of the schedulers.
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

// Name returns the mode of a team as clients see it. A team that routes is a coordinator team.
func Name(t *teamv1.TeamConfig) string {
	switch {
	case t.GetSupervisor() != nil, t.GetLoop() != nil:
		return "supervisor"
	case Leader(t) != nil:
		return "coordinator"
	case t.GetSwarm() != nil:
		return "swarm"
	case t.GetProgram() != nil:
		return "program"
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
	l := listed(t.GetWorkflow().GetSteps())
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

// Supervisor returns the scheduler configuration of a supervisor team, or of one whose members work in a loop.
func Supervisor(t *teamv1.TeamConfig) supervisor.Config {
	s := t.GetSupervisor()
	c := supervisor.Config{Members: Members(t), Inputs: InputNames(t.GetInputs())}
	if l := t.GetLoop(); l != nil && t.GetSupervisor() == nil { // a rule reports both
		c.Loop = &supervisor.Loop{ExitWhen: l.GetExitWhen(), MaxRounds: int(l.GetMaxRounds()), Answer: l.GetAnswer()}
	}
	if s.GetRouter() != nil {
		c.Router = &supervisor.Router{Instructions: s.GetRouter().GetInstructions()}
	}
	for _, r := range s.GetRules() {
		c.Rules = append(c.Rules, supervisor.Rule{ID: r.GetId(), When: r.GetWhen(), Next: r.GetNext(), Finish: r.GetFinish(), Message: r.GetMessage()})
	}
	return c
}

// Workflow returns the scheduler configuration of a workflow team.
func Workflow(t *teamv1.TeamConfig) workflow.Config {
	return workflow.Config{Steps: workflowSteps(t.GetWorkflow().GetSteps()), Inputs: InputNames(t.GetInputs())}
}

func workflowSteps(steps []*teamv1.WorkflowStep) []workflow.Step {
	var out []workflow.Step
	for _, s := range steps {
		step := workflow.Step{
			ID: s.GetId(), Member: s.GetAgent(), Task: s.GetTask(), After: s.GetAfter(), When: s.GetWhen(),
			Parallel: workflowSteps(s.GetParallel()), Quorum: int(s.GetQuorum()), Timeout: s.GetTimeout().AsDuration(), Retry: s.GetRetry(),
			Required: s.GetRequired(), Output: s.GetOutput().GetName(),
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

// LeaderModel returns the model of the leader of a team: of a coordinator team, a team that routes, one that plans its
// workflow, or one with a scheduler of a program. It is empty if the team has none.
func LeaderModel(t *teamv1.TeamConfig) string {
	if plan := t.GetWorkflow().GetPlan(); plan != nil {
		return plan.GetModel()
	}
	if t.GetProgram() != nil {
		return t.GetProgram().GetModel()
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
