package a2a

import (
	"context"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Part returns the first part of a task of the caller, artifacts first, for which is
// returns true. TASK_NOT_FOUND if the task does not exist or has no such part.
func (h *Handler) Part(ctx context.Context, tenant, id string, is func(*a2av1.Part) bool) (*a2av1.Part, error) {
	f, err := h.owned(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	t := f.task(false)
	var lists [][]*a2av1.Part
	for _, a := range t.GetArtifacts() {
		lists = append(lists, a.GetParts())
	}
	for _, m := range append(t.GetHistory(), t.GetStatus().GetMessage()) {
		lists = append(lists, m.GetParts())
	}
	for _, parts := range lists {
		for _, p := range parts {
			if is(p) {
				return p, nil
			}
		}
	}
	return nil, &Error{Reason: ReasonTaskNotFound, Code: agent.CodeNotFound, Message: "task \"" + clip(id) + "\" has no such part; read the task again"}
}
