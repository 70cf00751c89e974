package board

import (
	"errors"
	"fmt"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// notFound is the error for an item that is not on the board.
func notFound(id string) error {
	return agent.Errorf(agent.CodeNotFound, agent.ReasonWorkItemNotFound, "there is no item %.64q on this board", id)
}

// conflict is the error for an item that is not as a call wants it.
func conflict(it *teamv1.WorkItem, format string, args ...any) error {
	e := agent.Errorf(agent.CodeAborted, agent.ReasonVersionConflict, "item %q "+format, append([]any{it.GetId()}, args...)...).
		With("state", stateName(it.GetState()))
	if it.GetAssignee() != nil {
		e = e.With("assignee", Name(it.GetAssignee()))
	}
	return e
}

// invalid is the error for a field of a request.
func invalid(field, format string, args ...any) error {
	return a2a.Invalid(a2a.Violation{Field: field, Description: fmt.Sprintf(format, args...)})
}

// storeError is what a caller is told of an error of a change or a look: one of
// ours is for it.
func storeError(err error) error {
	var ours *agent.Error
	var fault *a2a.Error
	switch {
	case err == nil || errors.As(err, &ours) || errors.As(err, &fault):
		return err
	case errors.Is(err, a2a.ErrReused):
		return invalid("op", "was used before for something else; use a new one for a new call")
	case errors.Is(err, a2a.ErrDataLoss):
		return agent.Errorf(agent.CodeDataLoss, agent.ReasonDataLoss,
			"what is on record of the board is damaged; tasks are not: restore a backup, or do without it").Because(err)
	}
	return a2a.StoreError("", err)
}

func stateName(s teamv1.WorkItem_State) string { return strings.TrimPrefix(s.String(), "STATE_") }

// standing is how an item stands, in words.
func standing(it *teamv1.WorkItem) string {
	if it.GetState() != teamv1.WorkItem_STATE_IN_PROGRESS {
		return stateName(it.GetState())
	}
	return "held by " + Name(it.GetAssignee())
}
