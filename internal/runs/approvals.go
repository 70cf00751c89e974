package runs

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Approvals is the part of a store that finds open questions that are addressed to
// roles, in the tasks of all owners of an account. It is the only part of a store that returns
// data of other owners than the caller. A question can be found from the commit of its Asked
// event until the commit of the event that closes it. Implementations must be safe for concurrent
// use.
type Approvals interface {
	// Questions returns the open questions that f selects, ordered by the id of the root task
	// and, within a task, in the order in which they were asked. more reports whether there are
	// further questions after the last one.
	Questions(ctx context.Context, f QuestionFilter) (list []RoleQuestion, more bool, err error)
	// Root returns the key of a root task of any owner in an account. The
	// caller must check which questions of the task the user may answer. Root returns ErrNotFound
	// if the account has no such task.
	Root(ctx context.Context, account, id string) (Key, error)
}

// QuestionFilter selects open questions that are addressed to roles.
type QuestionFilter struct {
	// Account is the account whose tasks are searched. Required.
	Account string
	// Roles selects the questions addressed to at least one of these roles. EveryRole selects the
	// questions to any role instead.
	Roles     []string
	EveryRole bool
	// Except is an owner whose tasks are left out. Empty leaves out none.
	Except string
	// Root selects one root task, and Scope a scope in it and all below. An empty Root selects
	// all tasks.
	Root, Scope string
	// Agent selects the root tasks that were sent to this agent. Empty selects all.
	Agent string
	// After and AfterSeq are the root id and the sequence number of the last question of the
	// previous page. An empty After selects the first page.
	After    string
	AfterSeq int64
	// Limit is the maximum number of questions. Required.
	Limit int
}

// RoleQuestion is an open question that is addressed to roles.
type RoleQuestion struct {
	// Task is the root task in which the question was asked.
	Task Key
	// Agent is the id of the agent that the root task was sent to.
	Agent string
	// Asked is the event that asked the question. It is shared; do not modify it.
	Asked *teamv1.Event
}
