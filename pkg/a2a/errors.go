package a2a

import (
	"fmt"
	"strconv"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// VersionNotSupported returns the error for a call in another version of the protocol.
func VersionNotSupported(version string) *a2aerror.Error {
	return &a2aerror.Error{
		Reason: a2aerror.ReasonVersionNotSupported, Code: agent.CodeFailedPrecondition,
		Message: fmt.Sprintf("version %q of the protocol is not supported; use %s", a2aerror.Clip(version), ProtocolVersion),
		Details: map[string]string{"supported": ProtocolVersion},
	}
}

// mayNot returns the error for an answer to a question that is addressed to roles the caller does
// not have.
func mayNot(q *teamv1.Question) error {
	roles := strings.Join(q.GetRoles(), ", ")
	return agent.Errorf(agent.CodePermissionDenied, agent.ReasonPermissionDenied,
		"the question is addressed to the roles %s, and the caller has none of them; a caller with one of these roles must answer it with AnswerQuestion of the monitor service", a2aerror.Clip(roles)).
		With("roles", a2aerror.Clip(roles)).With("question", a2aerror.Clip(q.GetQuestion()))
}

// pushNotFound returns the error for a push configuration that the task does not have.
func pushNotFound(task, id string) *a2aerror.Error {
	e := a2aerror.TaskNotFound(task)
	e.Message = "task " + strconv.Quote(a2aerror.Clip(task)) + " has no push configuration " + strconv.Quote(a2aerror.Clip(id))
	return e
}
