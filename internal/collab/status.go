package collab

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// Values for the status of a collaboration, its phase, and the status of its agents. They
// are derived from the state of its task and its steps.
const (
	executing  = "executing"
	completed  = "completed"
	failed     = "failed"
	paused     = "paused"
	terminated = "terminated"
	started    = "started"
	planning   = "planning"
	reviewing  = "reviewing"
	waiting    = "waiting"
	working    = "working"
	blocked    = "blocked"
)

// status returns the status of a collaboration. The context and partial results are
// included with details.
func (r *run) status(details bool) *teamv1.GetCollaborationStatusResponse {
	resp := &teamv1.GetCollaborationStatusResponse{
		CollaborationId: r.Root, TeamId: r.Accepted.GetAgent(), Status: r.word(), Progress: r.progress(), Agents: r.agents(), Error: r.failure(),
		Round: r.currentRound(), Questions: r.task.Questions(), Stopping: r.task.Stop() != nil && !r.ended(), Brief: r.Accepted.GetCollaboration(),
		Started: timestamppb.New(r.Top.Since),
	}
	if details {
		resp.SharedContext = &structpb.Struct{Fields: r.Context()}
		if !r.dropped() {
			resp.PartialResults = r.partial()
		}
	}
	return resp
}

// word returns the status in one word.
func (r *run) word() string {
	switch r.task.State() {
	case a2av1.TaskState_TASK_STATE_COMPLETED:
		return completed
	case a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_CANCELED, a2av1.TaskState_TASK_STATE_REJECTED:
		return failed
	case a2av1.TaskState_TASK_STATE_INPUT_REQUIRED, a2av1.TaskState_TASK_STATE_AUTH_REQUIRED:
		return paused
	case a2av1.TaskState_TASK_STATE_UNSPECIFIED, a2av1.TaskState_TASK_STATE_SUBMITTED, a2av1.TaskState_TASK_STATE_WORKING:
	}
	if r.task.Paused() {
		return paused
	}
	return executing
}

// finalStatus returns how the collaboration ended, or "" if it has not ended.
func (r *run) finalStatus() string {
	switch r.task.State() {
	case a2av1.TaskState_TASK_STATE_COMPLETED:
		return completed
	case a2av1.TaskState_TASK_STATE_CANCELED:
		return terminated
	case a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_REJECTED:
		return failed
	case a2av1.TaskState_TASK_STATE_UNSPECIFIED, a2av1.TaskState_TASK_STATE_SUBMITTED, a2av1.TaskState_TASK_STATE_WORKING,
		a2av1.TaskState_TASK_STATE_INPUT_REQUIRED, a2av1.TaskState_TASK_STATE_AUTH_REQUIRED:
	}
	return ""
}

// workflowStatus returns the status of a new collaboration: started until a replica claims
// its run, then planning, and executing once a step has been delegated.
func (r *run) workflowStatus() string {
	switch {
	case len(r.given()) > 0:
		return executing
	case r.driven:
		return planning
	}
	return started
}

// failure returns the error of a failed collaboration, otherwise nil.
func (r *run) failure() *teamv1.Error {
	if r.word() != failed {
		return nil
	}
	return r.task.Ended().GetError()
}

// currentRound returns the current round, or the last one after the end.
func (r *run) currentRound() int32 { return max(r.Top.Round, 1) }

// progress returns how many of the known tasks are completed.
func (r *run) progress() *teamv1.CollaborationProgress {
	p := &teamv1.CollaborationProgress{CurrentPhase: r.phase(), TotalTasks: int32(len(r.ahead()))} //nolint:gosec // 256 steps at most
	for _, s := range r.own() {
		if !needed(s) {
			continue
		}
		p.TotalTasks++
		if done(s) {
			p.CompletedTasks++
		}
	}
	if p.GetTotalTasks() > 0 {
		p.CompletionPercentage = 100 * float64(p.GetCompletedTasks()) / float64(p.GetTotalTasks())
	}
	return p
}

// phase returns what is being done at present: the names of running steps, or a status.
func (r *run) phase() string {
	if r.ended() {
		return r.finalStatus()
	}
	var names []string
	judged := false
	for _, s := range r.Top.Steps {
		if !s.Open() {
			continue
		}
		judged = judged || s.Step.GetKind() == teamv1.Step_KIND_JUDGE && !r.Parked()
		if s.Delegated() && r.works(s) && !slices.Contains(names, label(s)) {
			names = append(names, label(s))
		}
	}
	switch status := r.workflowStatus(); {
	case judged:
		return reviewing
	case len(names) > 0:
		return strings.Join(names, ", ")
	case len(r.task.Questions()) > 0, r.Parked():
		return waiting
	default:
		return status
	}
}

// agents returns the status of the members, the leader's first.
func (r *run) agents() []*teamv1.CollaborationAgent {
	var list []*teamv1.CollaborationAgent
	if r.leads() {
		list = append(list, r.leader())
	}
	for _, id := range r.members() {
		list = append(list, r.activity(id))
	}
	return list
}

// members returns the IDs of the members: those in the definition or, if it is unknown,
// those observed, and those that had steps.
func (r *run) members() []string {
	var ids []string
	add := func(id string) {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, m := range r.plan.members {
		add(m.id)
	}
	if !r.plan.known {
		for _, m := range r.observed {
			add(m.GetId())
		}
	}
	for _, s := range r.own() {
		add(s.Step.GetMember())
	}
	return ids
}

// leads reports whether the team has a leader, according to its definition. If that is
// unknown, a team has a leader if its run has a step of kind MODEL.
func (r *run) leads() bool {
	return r.plan.leads || !r.plan.known && slices.ContainsFunc(r.Top.Steps, func(n *journal.Node) bool { return n.Step.GetKind() == teamv1.Step_KIND_MODEL })
}

const roleLead = "lead"

func (r *run) leader() *teamv1.CollaborationAgent {
	a := &teamv1.CollaborationAgent{AgentId: r.Accepted.GetAgent(), Role: roleLead, Status: waiting}
	for _, s := range r.Top.Steps {
		if !s.Delegated() && r.works(s) {
			a.Status, a.CurrentTask = working, clip(r.Accepted.GetCollaboration().GetTaskDescription())
		}
	}
	if r.ended() {
		a.Status = completed
	}
	return a
}

// activity returns what a member is doing.
func (r *run) activity(id string) *teamv1.CollaborationAgent {
	m := r.plan.member(id)
	a := &teamv1.CollaborationAgent{AgentId: id, Role: cmp.Or(m.role, id)}
	if r.ended() {
		a.Status = completed
		return a
	}
	rank := map[string]int{working: 4, blocked: 3, waiting: 2}
	set := func(status, task string) {
		if rank[status] > rank[a.GetStatus()] {
			a.Status, a.CurrentTask = status, clip(task)
		}
	}
	for _, s := range r.own() {
		switch {
		case s.Step.GetMember() != id || !s.Open() || s.Dropped:
		case s.Asks():
			set(blocked, r.about(s))
		case r.works(s):
			set(working, r.about(s))
		default:
			set(waiting, r.about(s))
		}
	}
	if a.GetStatus() != "" {
		return a
	}
	for _, p := range r.ahead() {
		if p.member == id {
			set(blocked, p.id)
		}
	}
	switch {
	case m.disabled || r.offline(id):
		a.Status = blocked
	case a.GetStatus() == "" && r.plan.workflow:
		a.Status = completed
	case a.GetStatus() == "":
		a.Status = waiting
	}
	return a
}

// about returns a description of a step for people.
func (r *run) about(n *journal.Node) string {
	name := n.Step.GetName()
	if n.Step.GetKind() == teamv1.Step_KIND_STEP && name != "" {
		return name
	}
	in := n.Step.GetInput()
	return cmp.Or(agent.Text(in.GetMessage()), agent.Text(r.Text(in.GetRef())), name)
}

// offline reports whether a member was unhealthy when it was last checked.
func (r *run) offline(id string) bool {
	return slices.ContainsFunc(r.observed, func(m *teamv1.Observed_Member) bool {
		return m.GetId() == id && m.GetHealth() != nil && !m.GetHealth().GetHealthy()
	})
}

// dropped reports whether the collaboration was stopped without saving its results.
func (r *run) dropped() bool { return r.task.Stop() != nil && !r.task.Stop().GetSavePartial() }

// partial returns the results of members so far, by member ID.
func (r *run) partial() map[string]string {
	all := map[string]string{}
	for id, list := range r.delivered() {
		var texts []string
		for _, s := range list {
			texts = append(texts, agent.Text(s.Reply))
		}
		all[id] = strings.Join(texts, "\n\n")
	}
	return all
}

// delivered returns the successful steps with a reply, by member ID. It includes only those
// of the last round in which the member delivered a result, and of a repeated workflow step
// only the last run.
func (r *run) delivered() map[string][]*journal.Node {
	all := map[string][]*journal.Node{}
	for _, s := range r.own() {
		if s.Step.GetMember() == "" || !done(s) || s.Reply == nil {
			continue
		}
		list := slices.DeleteFunc(all[s.Step.GetMember()], func(old *journal.Node) bool {
			return old.InRound < s.InRound || s.Step.GetKind() == teamv1.Step_KIND_STEP && s.Step.GetName() != "" && old.Step.GetName() == s.Step.GetName()
		})
		all[s.Step.GetMember()] = append(list, s)
	}
	return all
}
