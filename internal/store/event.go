package store

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// Limits of one journal. Events that end a run or a step are accepted beyond them.
const (
	maxEvents = 51_200
	maxBytes  = 50 << 20 // of all encoded events
)

// RequestWindow is how long a repeated request is recognized, unless a store is configured with
// another time for message ids.
const RequestWindow = 24 * time.Hour

// serverKey reports whether this server made a key. Other keys are the ids of callers' messages,
// which do not contain a slash.
func serverKey(key string) bool { return strings.Contains(key, "/") }

// AgentKey returns the key of the agent of a task; see agent.KeyOf.
func AgentKey(acc *teamv1.Accepted) string {
	return agent.KeyOf(acc.GetPins().GetAccounts()[acc.GetAgent()], acc.GetAgent())
}

// AgentOf returns the key of the agent for which a key is unique: that of the given agent for the id of a
// caller's message, or an empty one for a key that this server made.
func AgentOf(key, agentKey string) string {
	if serverKey(key) {
		return ""
	}
	return agentKey
}

// Window is how long a key is recognized in a store that remembers message ids for the
// given time; 0 means RequestWindow.
func Window(key string, deduplicate time.Duration) time.Duration {
	if serverKey(key) || deduplicate == 0 {
		return RequestWindow
	}
	return deduplicate
}

// Sender returns the caller within whose messages the key of an input is unique: the caller who
// gave it for an answer, and owner, the owner of the task, for all other inputs.
func Sender(owner string, in *teamv1.Inbound) string { return cmp.Or(in.GetAnswered().GetBy(), owner) }

// closes reports whether an event belongs to the end of a run or a step, so that a full journal
// still accepts it.
func closes(ev *teamv1.Event) bool { return ev.GetEnded() != nil || ev.GetReceived().GetTooLate() }

// Consumes returns the number of the inbox row that an event records, 0 without one.
func Consumes(ev *teamv1.Event) int64 {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Received:
		return k.Received.GetInbound()
	case *teamv1.Event_Answered:
		return k.Answered.GetInbound()
	case *teamv1.Event_Commanded:
		return k.Commanded.GetInbound()
	}
	return 0
}

// TooLate returns the event that records an input which was acknowledged, but not recorded before
// the run ended. It returns nil for a command, which has no message to show. end is the end of the
// run.
func TooLate(in *teamv1.Inbound, end *teamv1.Event) *teamv1.Event {
	late := &teamv1.Received{TooLate: true, Inbound: in.GetN()}
	switch k := in.GetKind().(type) {
	case *teamv1.Inbound_Received:
		late.Message, late.TaskId = k.Received.GetMessage(), k.Received.GetTaskId()
	case *teamv1.Inbound_Answered:
		late.Message = k.Answered.GetMessage()
	default:
		return nil
	}
	return &teamv1.Event{Scope: in.GetScope(), Agent: end.GetAgent(), Kind: &teamv1.Event_Received{Received: late}}
}

// Size returns the total size of encoded events in bytes.
func Size(events []*teamv1.Event) (n int64) {
	for _, ev := range events {
		n += int64(proto.Size(ev))
	}
	return n
}

// Admit returns an error if a journal does not accept the events: runs.ErrTerminal if the run has
// ended, or runs.ErrLimit if the journal is full. ended, count and bytes describe the journal, and
// size is the encoded size of the events. Either all events are accepted or none.
func Admit(root string, ended bool, count, bytes int64, events []*teamv1.Event, size int64) error {
	closing := true
	for _, ev := range events {
		if ended {
			return fmt.Errorf("append to %s: %w", root, runs.ErrTerminal)
		}
		ended = taskstate.EndsRun(ev)
		closing = closing && closes(ev)
	}
	if !closing && (count+int64(len(events)) > maxEvents || bytes+size > maxBytes) {
		return fmt.Errorf("append to %s: %w", root, runs.ErrLimit)
	}
	return nil
}
