package project

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// standing is the status of a task.
type standing struct {
	state    a2av1.TaskState
	statusAt time.Time
	status   *a2av1.Message
}

// Exists reports whether the task has begun.
func (s *standing) Exists() bool { return s.state != a2av1.TaskState_TASK_STATE_UNSPECIFIED }

// State returns the task's state.
func (s *standing) State() a2av1.TaskState { return s.state }

// StatusAt returns when the status last changed, truncated to milliseconds.
func (s *standing) StatusAt() time.Time { return s.statusAt }

// taskStatus returns the status of the task.
func (s *standing) taskStatus() *a2av1.TaskStatus {
	return &a2av1.TaskStatus{State: s.state, Message: s.status, Timestamp: timestamppb.New(s.statusAt)}
}

// remarks are the problems that did not stop a run.
type remarks struct{ warnings []string }

// maxShownWarnings is the maximum number of warnings in a task.
const maxShownWarnings = 100

// checked adds a warning for a middleware that failed and was skipped. A message that a guardrail
// blocked is reported by the end of its step or run instead.
func (r *remarks) checked(c *teamv1.Checked) {
	if c.GetError() != nil && !c.GetBlocked() {
		r.warn(c.GetError().GetMessage())
	}
}

// warn adds warnings, without duplicates: one that a check has given is in the reply of its step as well, and teams
// pass it on with the names of the members before it.
func (r *remarks) warn(texts ...string) {
	for _, text := range texts {
		known := slices.ContainsFunc(r.warnings, func(w string) bool { return w == text || strings.HasSuffix(text, ": "+w) })
		if len(r.warnings) < maxShownWarnings && !known {
			r.warnings = append(r.warnings, text)
		}
	}
}
