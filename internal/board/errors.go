package board

import (
	"errors"
	"fmt"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// notFound returns the error for an item that does not exist.
func notFound(id string) error {
	return agent.Errorf(agent.CodeNotFound, agent.ReasonWorkItemNotFound, "there is no item %.64q on this board", id)
}

// conflict returns the error for an item whose state or version does not allow the call.
func conflict(it *teamv1.WorkItem, format string, args ...any) error {
	e := agent.Errorf(agent.CodeAborted, agent.ReasonVersionConflict, "item %q "+format, append([]any{it.GetId()}, args...)...).
		With("state", stateName(it.GetState()))
	if it.GetAssignee() != nil {
		e = e.With("assignee", Name(it.GetAssignee()))
	}
	return e
}

// invalid returns the error for a field of a request.
func invalid(field, format string, args ...any) error {
	return a2aerror.Invalid(agent.Violation{Field: field, Description: fmt.Sprintf(format, args...)})
}

// storeError converts an error of the store to one for callers. Errors that are already for
// callers pass unchanged.
func storeError(err error) error {
	var ours *agent.Error
	var fault *a2aerror.Error
	switch {
	case err == nil || errors.As(err, &ours) || errors.As(err, &fault):
		return err
	case errors.Is(err, runs.ErrReused):
		return invalid("op", "was already used for a different call; use a new one")
	case errors.Is(err, runs.ErrDataLoss):
		return agent.Errorf(agent.CodeDataLoss, agent.ReasonDataLoss,
			"the stored data of the board is damaged; tasks are not affected; restore a backup to recover the board").Because(err)
	}
	return runs.StoreError("", err)
}

func stateName(s teamv1.WorkItem_State) string { return strings.TrimPrefix(s.String(), "STATE_") }

// stateText returns the state of an item in words.
func stateText(it *teamv1.WorkItem) string {
	if it.GetState() != teamv1.WorkItem_STATE_IN_PROGRESS {
		return stateName(it.GetState())
	}
	return "held by " + Name(it.GetAssignee())
}
