package runs

import (
	"context"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// Conversations is the part of a store that stores the conversation of each context:
// what agents were asked, what they answered and their state. Without it, a
// context id is returned to the client but has no further effect. An error of its methods never
// fails a run. Implementations must be safe for concurrent use.
//
// Entries of a conversation are numbered from 1, in the order in which the exchanges were
// committed. A run reads entries up to the position that was the last one when the run was
// accepted, so that a replay reads the same. At least the last KeptEntries of each path are kept.
// A conversation to which nothing was added for the retention time is deleted.
type Conversations interface {
	// Position returns the number of the last entry, or 0 if there is no such conversation.
	Position(ctx context.Context, t Thread) (int64, error)
	// Recall returns what the agent at path knows of a conversation up to the position upTo: the
	// last agent.HistoryLength entries and the state. The result is shared; do not modify it. It
	// returns ErrDataLoss if the record is damaged.
	Recall(ctx context.Context, t Thread, path string, upTo int64) (Recollection, error)
	// Remember adds an exchange to a conversation, completely or not at all. It is idempotent: a
	// task adds only one exchange. It does not keep references to e.
	Remember(ctx context.Context, t Thread, e Exchange) error
}

// KeptEntries is the maximum number of entries of a path that are kept. The oldest are deleted
// first.
const KeptEntries = 1000

// Unread is the value of Conversation.history in the record of a run whose position could not be
// read when the run was accepted.
const Unread = -1

// Thread names a conversation. The same context id names different conversations for different
// owners.
type Thread struct {
	// Owner is the owner of the conversation, as account/principal.
	Owner string
	// ContextID is the context id of A2A.
	ContextID string
}

// Recollection is what the agent at a path knows of a conversation.
type Recollection struct {
	// History holds what the agent was asked and answered, oldest first.
	History []*a2av1.Message
	// State holds the values that the agent has set, by key.
	State map[string]*structpb.Value
}

// Exchange is what a run adds to its conversation when it ends.
type Exchange struct {
	// Task is the id of the root task.
	Task string
	// By holds what each agent adds, in the order in which the agents ended. An agent that worked
	// twice appears twice.
	By []Contribution
}

// Contribution is what one agent adds to a conversation.
type Contribution struct {
	// Path is the path of the agent, with the account that has made the root's agent by the API.
	Path string
	// Messages holds the new entries, oldest first.
	Messages []*a2av1.Message
	// State holds changed values by key. A null value deletes the key.
	State map[string]*structpb.Value
}

// Merged returns state with changes applied; a null value deletes its key. Neither argument is
// modified.
func Merged(state, changes map[string]*structpb.Value) map[string]*structpb.Value {
	merged := make(map[string]*structpb.Value, len(state)+len(changes))
	for k, v := range state {
		merged[k] = v
	}
	for k, v := range changes {
		if _, null := v.GetKind().(*structpb.Value_NullValue); null {
			delete(merged, k)
			continue
		}
		merged[k] = v
	}
	return merged
}
