package collab

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// The types below are the response bodies of contract calls (docs/collaborations.md). Each has the
// keys success and error. Unknown values are null.

// TeamAnswer is the response body of create_team.
type TeamAnswer struct {
	Success bool        `json:"success"`
	TeamID  string      `json:"team_id"`
	Status  string      `json:"status"` // "created", "initializing" or "ready"
	Agents  []TeamAgent `json:"agents"`
	Error   *string     `json:"error"`
}

// TeamAgent is an agent of a team.
type TeamAgent struct {
	AgentID string `json:"agent_id"`
	Role    string `json:"role"`
	Status  string `json:"status"` // "ready", "initializing" or "error"
}

// RenderTeam returns the response body of create_team.
func RenderTeam(resp *teamv1.CreateTeamResponse) TeamAnswer {
	a := TeamAnswer{Success: true, TeamID: resp.GetTeam().GetId(), Status: "ready", Agents: []TeamAgent{}}
	for _, m := range resp.GetMembers() {
		status := "ready"
		if m.GetHealth() != nil && !m.GetHealth().GetHealthy() {
			status = "error"
		}
		a.Agents = append(a.Agents, TeamAgent{AgentID: m.GetId(), Role: m.GetRoleName(), Status: status})
	}
	return a
}

// StartAnswer is the response body of start_collaboration.
type StartAnswer struct {
	Success             bool         `json:"success"`
	CollaborationID     string       `json:"collaboration_id"`
	WorkflowStatus      string       `json:"workflow_status"`
	EstimatedCompletion *string      `json:"estimated_completion"`
	InitialAssignments  []Assignment `json:"initial_assignments"`
	Error               *string      `json:"error"`
}

// Assignment is work that a team starts with.
type Assignment struct {
	Agent    string `json:"agent"`
	Task     string `json:"task"`
	Priority int32  `json:"priority"`
}

// RenderStart returns the response body of start_collaboration.
func RenderStart(resp *teamv1.StartCollaborationResponse) StartAnswer {
	a := StartAnswer{
		Success: true, CollaborationID: resp.GetCollaborationId(), WorkflowStatus: resp.GetWorkflowStatus(),
		EstimatedCompletion: isoTime(resp.GetEstimatedCompletion()), InitialAssignments: []Assignment{},
	}
	for _, i := range resp.GetInitialAssignments() {
		a.InitialAssignments = append(a.InitialAssignments, Assignment{Agent: i.GetAgentId(), Task: i.GetTask(), Priority: i.GetPriority()})
	}
	return a
}

// StatusAnswer is the response body of get_collaboration_status.
type StatusAnswer struct {
	Success        bool               `json:"success"`
	Status         string             `json:"status"`
	Progress       Progress           `json:"progress"`
	AgentStatuses  []AgentStatus      `json:"agent_statuses"`
	SharedContext  *map[string]any    `json:"shared_context,omitempty"`  // with include_details
	PartialResults *map[string]string `json:"partial_results,omitempty"` // with include_details
	Error          *string            `json:"error"`
}

// Progress is how much of the work is completed.
type Progress struct {
	CompletedTasks       int32   `json:"completed_tasks"`
	TotalTasks           int32   `json:"total_tasks"`
	CompletionPercentage float64 `json:"completion_percentage"`
	CurrentPhase         string  `json:"current_phase"`
}

// AgentStatus is what an agent is doing.
type AgentStatus struct {
	AgentID     string  `json:"agent_id"`
	Role        string  `json:"role"`
	CurrentTask *string `json:"current_task"`
	Status      string  `json:"status"` // "working", "waiting", "completed" or "blocked"
}

// RenderStatus returns the response body of get_collaboration_status.
func RenderStatus(resp *teamv1.GetCollaborationStatusResponse) StatusAnswer {
	p := resp.GetProgress()
	a := StatusAnswer{
		Success: true, Status: resp.GetStatus(), AgentStatuses: []AgentStatus{}, Error: failureText(resp.GetError()),
		Progress: Progress{p.GetCompletedTasks(), p.GetTotalTasks(), p.GetCompletionPercentage(), p.GetCurrentPhase()},
	}
	if c := resp.GetSharedContext(); c != nil {
		shared, partial := c.AsMap(), resp.GetPartialResults()
		if partial == nil {
			partial = map[string]string{}
		}
		a.SharedContext, a.PartialResults = &shared, &partial
	}
	for _, g := range resp.GetAgents() {
		one := AgentStatus{AgentID: g.GetAgentId(), Role: g.GetRole(), Status: g.GetStatus()}
		if task := g.GetCurrentTask(); task != "" {
			one.CurrentTask = &task
		}
		a.AgentStatuses = append(a.AgentStatuses, one)
	}
	return a
}

// StopAnswer is the response body of stop_collaboration.
type StopAnswer struct {
	Success     bool    `json:"success"`
	FinalStatus string  `json:"final_status"`
	Results     Results `json:"results"`
	Metrics     Metrics `json:"metrics"`
	Error       *string `json:"error"`
}

// Results are the results of a collaboration.
type Results struct {
	Output         string         `json:"output"`
	QualityScore   *float64       `json:"quality_score"`
	CompletionTime *string        `json:"completion_time"`
	Contributions  []Contribution `json:"contributions"`
}

// Contribution is the result of one agent. The effort scores of a collaboration add up to
// 1.
type Contribution struct {
	Agent        string  `json:"agent"`
	Role         string  `json:"role"`
	Contribution string  `json:"contribution"`
	EffortScore  float64 `json:"effort_score"`
}

// Metrics measure the work of a collaboration.
type Metrics struct {
	TotalDurationMinutes int32 `json:"total_duration_minutes"`
	MessagesExchanged    int32 `json:"messages_exchanged"`
	IterationsCompleted  int32 `json:"iterations_completed"`
}

// RenderStop returns the response body of stop_collaboration.
func RenderStop(resp *teamv1.StopCollaborationResponse) StopAnswer {
	res, m := resp.GetResults(), resp.GetMetrics()
	a := StopAnswer{
		Success: true, FinalStatus: resp.GetFinalStatus(), Error: failureText(resp.GetError()),
		Results: Results{
			Output: res.GetOutput(), QualityScore: res.QualityScore, CompletionTime: isoTime(res.GetCompletionTime()), //nolint:protogetter // set or not matters
			Contributions: []Contribution{},
		},
		Metrics: Metrics{m.GetTotalDurationMinutes(), m.GetMessagesExchanged(), m.GetIterationsCompleted()},
	}
	for _, c := range res.GetContributions() {
		a.Results.Contributions = append(a.Results.Contributions, Contribution{c.GetAgentId(), c.GetRole(), c.GetText(), c.GetEffortScore()})
	}
	return a
}

// isoTime formats a time in UTC as RFC 3339. It returns nil if t is nil.
func isoTime(t *timestamppb.Timestamp) *string {
	if t == nil {
		return nil
	}
	s := t.AsTime().UTC().Format(time.RFC3339)
	return &s
}
