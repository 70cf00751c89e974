package collab

import (
	"cmp"
	"slices"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// plan is what the definition of a team says about its work: its members, and the steps of
// a workflow.
type plan struct {
	team     string
	known    bool // the definition is known
	leads    bool // the team has a leader
	members  []member
	steps    []planned
	timeout  time.Duration // of a run; 0 if not set
	perTask  time.Duration // of a member's step; 0 if not set
	workflow bool
}

type member struct {
	id, role string
	timeout  time.Duration
	disabled bool
}

// planned is a step of a workflow.
type planned struct {
	id, member, task string
	after            bool // it depends on another step
	timeout          time.Duration
}

// planOf returns the plan of a definition. If def is nil, or has neither members nor a
// workflow, the definition is unknown and the plan contains only the team.
func planOf(team string, def *teamv1.TeamConfig) plan {
	p := plan{team: team}
	if def == nil || len(def.GetMembers()) == 0 && def.GetWorkflow() == nil {
		return p
	}
	p.known, p.leads = true, modes.Leader(def) != nil || def.GetWorkflow().GetPlan() != nil
	p.timeout, p.perTask = def.GetLimits().GetTimeout().AsDuration(), def.GetLimits().GetMemberTimeout().AsDuration()
	for _, m := range modes.Members(def) {
		id := cmp.Or(m.ID, m.Agent)
		p.members = append(p.members, member{id: id, role: m.Role, timeout: m.Timeout, disabled: m.Disabled})
	}
	if def.GetWorkflow() != nil && def.GetWorkflow().GetPlan() == nil { // otherwise a model plans the steps of each run
		p.workflow = true
		for _, s := range modes.Plan(def) {
			p.steps = append(p.steps, planned{id: s.ID, member: s.Member, task: s.Task, after: len(s.After) > 0, timeout: s.Timeout})
		}
	}
	return p
}

// has reports whether the plan has a step with this name.
func (p plan) has(name string) bool {
	return slices.ContainsFunc(p.steps, func(s planned) bool { return s.id == name })
}

func (p plan) member(id string) member {
	for _, m := range p.members {
		if m.id == id {
			return m
		}
	}
	return member{id: id}
}

// first returns the workflow steps of members that do not depend on other steps.
func (p plan) first(acc *teamv1.Accepted) []*teamv1.InitialAssignment {
	var list []*teamv1.InitialAssignment
	input := agent.Text(acc.GetMessage())
	room := agent.MaxText // for all tasks together
	for _, s := range p.steps {
		if s.after || s.member == "" {
			continue
		}
		task := s.task
		if n := strings.Count(task, "{{input}}") * len(input); n <= room { // a longer one is not shown with its input
			task, room = strings.ReplaceAll(task, "{{input}}", input), room-n
		}
		list = append(list, &teamv1.InitialAssignment{
			AgentId: s.member, Task: cmp.Or(task, acc.GetCollaboration().GetTaskDescription()),
			Priority: int32(len(list) + 1), //nolint:gosec // a workflow has 256 steps at most
		})
	}
	return list
}

// bound returns the maximum duration of a run: the smaller one of the team's timeout and most,
// the maximum duration of the collaboration; 0 means that most is not set. A workflow takes
// at most the sum of the timeouts of its steps.
func (p plan) bound(most time.Duration) time.Duration {
	limit := p.timeout
	if most > 0 && (limit == 0 || most < limit) {
		limit = most
	}
	limit = cmp.Or(limit, team.DefaultTimeout)
	if len(p.steps) == 0 {
		return limit
	}
	var sum time.Duration
	for _, s := range p.steps {
		sum += cmp.Or(s.timeout, p.member(s.member).timeout, p.perTask, team.DefaultMemberTimeout)
	}
	return min(sum, limit)
}
