package store

import "time"

// Keep says how long a store keeps what is not part of a task. 0 keeps it, up to the limits that it has
// anyway.
type Keep struct {
	// Conversations is how long a conversation is kept after something was added to it last, unless a
	// task of it has not ended. 0 means that of ended tasks in a database.
	Conversations time.Duration
	// Boards is how long the events of a board are kept, and its items after they have ended, unless an
	// item that has not ended depends on them. The sequence number of a board is always kept.
	Boards time.Duration
	// Audit is how long records of the audit log are kept.
	Audit time.Duration
}
