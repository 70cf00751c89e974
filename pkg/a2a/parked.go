package a2a

import (
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Parked returns a task as readers see it while its run is parked: the reason is its
// status, and a warning of its TeamRun. t is not changed; with an empty reason it is
// returned as it is.
func Parked(t *a2av1.Task, reason string) *a2av1.Task {
	if reason == "" || t == nil {
		return t
	}
	run := RunOf(t.GetMetadata())
	if run == nil {
		run = &teamv1.TeamRun{}
	}
	run.Warnings = append(run.Warnings, reason)
	m := agent.NewMessage(reason)
	m.TaskId, m.ContextId = t.GetId(), t.GetContextId()
	return &a2av1.Task{
		Id: t.GetId(), ContextId: t.GetContextId(), Artifacts: t.GetArtifacts(), History: t.GetHistory(), Metadata: wrap(run),
		Status: &a2av1.TaskStatus{State: t.GetStatus().GetState(), Timestamp: t.GetStatus().GetTimestamp(), Message: m},
	}
}
