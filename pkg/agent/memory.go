package agent

import (
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// HistoryLength is the maximum number of past messages of a conversation that an agent is shown.
const HistoryLength = 20

// ConversationPrefix is the prefix of keys in a run's state that are stored with the conversation
// and thus are available to later runs. They belong to the agent whose path set them.
const ConversationPrefix = "conversation."

// OwnerKey is the key in a conversation's state of the member that answered last, in teams whose next
// message goes to that member.
const OwnerKey = ConversationPrefix + "active_owner"

// Memory gives a run access to its conversation, as it was when the run was accepted. Each agent
// has its own part of it, identified by the path of the agent; see Path. If something cannot be
// read, the methods return an empty result. Implementations must be safe for concurrent use.
// Callers must not modify the results.
type Memory interface {
	// History returns the latest messages that the agent at the path received and answered,
	// oldest first and at most HistoryLength. The metadata of an answer lists the delegations it
	// was based on, under DelegationsKey.
	History(path string) []*a2av1.Message
	// State returns the values that the agent at the path has set under keys with
	// ConversationPrefix.
	State(path string) map[string]*structpb.Value
}

// DelegationsKey is the key, in the metadata of a remembered answer, of the list of delegations
// that contributed to it. Each entry is an object with the fields member, task and outcome.
const DelegationsKey = "delegations"

// ToolCallsKey is the key, in the metadata of a remembered answer, of the list of tool calls behind it,
// oldest first. Each entry is an object with the fields tool, arguments and result, error if the call has failed, and agent if another
// agent than the one that remembers made the call. Arguments and result have at most MaxRemembered bytes.
const ToolCallsKey = "tool_calls"

// MaxRemembered is the maximum size of the arguments and of the result of a remembered tool call, in bytes.
const MaxRemembered = 4 << 10

// DefaultToolCalls is how many of the last tool calls of a conversation an agent remembers by default.
const DefaultToolCalls = 20

// ToolRememberer is an optional interface of a Rememberer that has a limit of its own.
type ToolRememberer interface {
	Rememberer
	// RemembersTools returns how many of the last tool calls of a conversation the agent remembers. The
	// result must never change.
	RemembersTools() int
}

// RemembersTools returns how many of the last tool calls of a conversation an agent remembers.
func RemembersTools(a Agent) int {
	if r, ok := a.(ToolRememberer); ok {
		return r.RemembersTools()
	}
	return DefaultToolCalls
}

// Rememberer is an optional interface of an Agent that remembers conversations. If the agent is
// the root of a run, its request and its answer are stored with the conversation, and Run.Memory
// returns them in later runs. For an agent that does not implement Rememberer nothing is stored
// and nothing is returned.
type Rememberer interface {
	Agent
	// Remembers reports whether the agent remembers conversations. The result must never change.
	Remembers() bool
}

// Remembers reports whether a implements Rememberer and its Remembers method returns true.
func Remembers(a Agent) bool {
	r, ok := a.(Rememberer)
	return ok && r.Remembers()
}

// ConversationID returns the context id to use for a call to an agent on another server. That
// server does not know the owners of this one, so the id must differ between owners: it is
// derived from the owner, the context id of req and the path of the agent. If the run has no
// owner, as when a team is used as a library, it is the context id of req.
func (r *Run) ConversationID(req *teamv1.ProcessRequest) string {
	if r.Owner == "" || req.GetContextId() == "" {
		return req.GetContextId()
	}
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(r.Owner+"\x00"+req.GetContextId()+"\x00"+Path(req))).String()
}

// Codes of Noted events that have a meaning to both the driver of a run and its agents.
const (
	// NoteTeamPrepared means that a team has recorded its members. The details are "members"
	// (their number), "mode", "memory" if the team's requests and answers are remembered
	// under its path, and "tools", with how many of the last tool calls.
	NoteTeamPrepared = "TEAM_PREPARED"
	// NoteMessages records the messages that a turn of a model is shown.
	NoteMessages = "MESSAGES"
	// NoteRemembered means that the request and the answer have been stored with the
	// conversation.
	NoteRemembered = "REMEMBERED"
	// NoteStorage means that reading or storing data failed, and that the run continues without
	// it.
	NoteStorage = "STORAGE"
	// NoteTools records the tools of the tool sets of an agent. The details are "tools", and "missing" with a text for
	// each tool set that does not answer, whose tools the run goes on without.
	NoteTools = "TOOLS"
)
