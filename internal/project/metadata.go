package project

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// RunOf returns the TeamRun in the metadata. It returns nil without one, and for one that is invalid.
func RunOf(metadata *structpb.Struct) *teamv1.TeamRun {
	v := metadata.GetFields()[TeamRunURI].GetStructValue()
	if v == nil {
		return nil
	}
	b, err := protojson.Marshal(v)
	if err != nil {
		return nil
	}
	r := &teamv1.TeamRun{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, r); err != nil {
		return nil
	}
	return r
}

// Parked returns a copy of t that shows why its run cannot continue at the moment: the reason is
// the message of its status and a warning of its TeamRun. It returns t itself if the reason is
// empty. t is not changed.
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
		Id: t.GetId(), ContextId: t.GetContextId(), Artifacts: t.GetArtifacts(), History: t.GetHistory(), Metadata: Metadata(run),
		Status: &a2av1.TaskStatus{State: t.GetStatus().GetState(), Timestamp: t.GetStatus().GetTimestamp(), Message: m},
	}
}
