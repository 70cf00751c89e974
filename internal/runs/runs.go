// Package runs has what the task handler, the engine and the stores share: the keys of tasks, claims, and the interfaces and
// errors of a store. It has no code of any of them, so that a change in one does not touch the others.
package runs

import (
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Key identifies a task of an owner. A store never looks a task up by its id alone.
type Key struct {
	// Owner is the owner of the task, as account/principal.
	Owner string
	// ID is the id of a root task, or that of a delegation within it: root~scope.
	ID string
}

// New describes a task to create.
type New struct {
	// Owner is the owner of the task, as account/principal.
	Owner string
	// Accepted is the first event of the task. Its TaskId is the id of the root task.
	Accepted *teamv1.Accepted
	// Kept are further events of the journal, which follow Accepted. Create sets their Seq and Time.
	Kept []*teamv1.Event
	// MessageID makes Create idempotent for the owner and the agent, for as long as the store
	// remembers message ids. If it is empty, each call creates a task.
	MessageID string
	// Digest is a digest of the message and the agent. If the MessageID is known with another
	// digest, the error is ErrReused.
	Digest []byte
	// Push is a push configuration that is created with the task. Its receiver is notified from
	// the first event on. Nil means none. It is used only if the store has Pushes. The
	// error is ErrPushOwner if the owner has too many.
	Push *a2av1.TaskPushNotificationConfig
	// PushVersion is the Version of Push; see the type Push.
	PushVersion string
	// Collaborations is the maximum number of running collaborations of the agent that belong to the
	// account of the owner, including this one. If it would be exceeded, the error is ErrBusy, except
	// for a known MessageID. 0 means that the task is not a collaboration. A collaboration that waits
	// for people or is paused does not count as running.
	Collaborations int
	// AccountCollaborations is the same for all agents together; the error is ErrAccountBusy. 0 means
	// no maximum.
	AccountCollaborations int
	// Entry is the catalog entry that defines the agent of a collaboration. If it no longer
	// exists, the error is ErrDeleted. It is empty if the agent is not in a catalog.
	Entry string
}

// Standing is to whom a root task belongs, and its state.
type Standing struct {
	// Agent is the id of the agent that the task was sent to, and Account the account that had made it by the API then,
	// empty for an agent of the configuration file.
	Agent, Account string
	ContextID      string
	State          a2av1.TaskState
}
