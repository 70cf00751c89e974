package a2a

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Conversations keeps what runs remember of the context that they belong to. Without
// it a context id is echoed and means nothing more. An error of it fails no run. Safe
// for concurrent use.
//
// Entries have their place in the conversation, from 1, in the order in which
// exchanges were committed. A run reads up to the place that was the last when it
// was accepted, so a replay reads what the run has read. At least the last
// KeptEntries of each path are kept; a conversation that nothing was added to for
// the retention time is deleted.
type Conversations interface {
	// Position returns the place of the last entry; 0 for a conversation that
	// there is none of.
	Position(ctx context.Context, t Thread) (int64, error)
	// Recall returns what the agent at a path knows of a conversation up to a
	// place: its last agent.HistoryLength entries, and the keys it has set. What it
	// returns is shared: read only. ErrDataLoss.
	Recall(ctx context.Context, t Thread, path string, upTo int64) (Recollection, error)
	// Remember adds an exchange, all of it or nothing. A task adds once: adding
	// again changes nothing. The exchange is not kept by reference.
	Remember(ctx context.Context, t Thread, e Exchange) error
}

// KeptEntries is how many entries a path of a conversation has at most; the
// oldest go first.
const KeptEntries = 1000

// Unread as a teamv1.Conversation's history: its place could not be read when the run
// was accepted.
const Unread = -1

// Thread names a conversation. Two owners who use the same context id have
// nothing in common.
type Thread struct {
	// Owner is account/principal.
	Owner string
	// ContextID is A2A's.
	ContextID string
}

// Recollection is what the agent at a path knows of a conversation.
type Recollection struct {
	// History: what it was asked and what it answered, oldest first.
	History []*a2av1.Message
	// State: the keys that it has set.
	State map[string]*structpb.Value
}

// Exchange is what a run adds to its conversation.
type Exchange struct {
	// Task is the run's root.
	Task string
	// By says what each agent adds, in the order in which they ended; one that
	// worked twice is there twice.
	By []Contribution
}

// Contribution is what one agent adds to a conversation.
type Contribution struct {
	// Path of the agent.
	Path string
	// Messages are new entries, oldest first.
	Messages []*a2av1.Message
	// State are keys that were set; null takes a key away.
	State map[string]*structpb.Value
}

// Merged returns a conversation's state with changes applied: a null takes its
// key away. Neither is changed.
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

// placeTime bounds how long the place of a conversation is waited for: a run can do
// without.
const placeTime = 5 * time.Second

// conversation is what a new run of an agent reads of the context that its
// message names. A context that is new has nothing to read.
func conversation(ctx context.Context, kept Conversations, a agent.Agent, t Thread, fresh bool) *teamv1.Conversation {
	v := &teamv1.Conversation{ContextId: t.ContextID}
	if kept == nil || fresh || !agent.Remembers(a) {
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	n, err := kept.Position(ctx, t)
	if err != nil {
		n = Unread // the run tells
	}
	v.History = n
	return v
}
