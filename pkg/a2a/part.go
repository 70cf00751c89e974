package a2a

import (
	"context"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Part returns the first part of a task of the caller for which is returns true. It looks at
// artifacts first, then at messages, then at values of metadata, which count as parts; see
// MetadataPart. It returns TASK_NOT_FOUND if there is no such task or no such part.
func (h *Handler) Part(ctx context.Context, tenant, id string, is func(*a2av1.Part) bool) (*a2av1.Part, error) {
	f, err := h.owned(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	t := f.Task()
	var lists [][]*a2av1.Part
	metadata := []*structpb.Struct{t.GetMetadata()}
	for _, a := range t.GetArtifacts() {
		lists, metadata = append(lists, a.GetParts()), append(metadata, a.GetMetadata())
	}
	for _, m := range append(t.GetHistory(), t.GetStatus().GetMessage()) {
		lists, metadata = append(lists, m.GetParts()), append(metadata, m.GetMetadata())
	}
	for _, parts := range lists {
		for _, p := range parts {
			if is(p) {
				return p, nil
			}
			metadata = append(metadata, p.GetMetadata())
		}
	}
	for _, s := range metadata {
		for _, v := range s.GetFields() {
			if p := MetadataPart(v); is(p) {
				return p, nil
			}
		}
	}
	return nil, &Error{Reason: ReasonTaskNotFound, Code: agent.CodeNotFound, Message: "task \"" + clip(id) + "\" has no such part; get the task again"}
}

// MetadataPart returns a value of metadata as a data part, so that it can be downloaded from a
// URL like other parts.
func MetadataPart(v *structpb.Value) *a2av1.Part {
	return &a2av1.Part{Content: &a2av1.Part_Data{Data: v}}
}
