package agent

import (
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// HistoryLength is how many entries of a conversation an agent is shown.
const HistoryLength = 20

// ConversationPrefix begins the keys of a run's context that outlive the run:
// they are kept with the conversation, for the agent at the path that set them.
const ConversationPrefix = "conversation."

// Memory is what a run reads of the conversation it belongs to, as it was when
// the run was accepted. Each agent sees its own part, by its path. What cannot be
// read is empty. Safe for concurrent use; what it returns is read only.
type Memory interface {
	// History returns the last entries, oldest first, at most HistoryLength: what
	// the agent at the path was asked and what it answered. The metadata of an
	// answer lists the delegations behind it under DelegationsKey.
	History(path string) []*a2av1.Message
	// State returns the keys with ConversationPrefix that the agent at the path has set.
	State(path string) map[string]*structpb.Value
}

// DelegationsKey is the metadata of a remembered answer that lists who worked for
// it: a list of objects {member, task, outcome}.
const DelegationsKey = "delegations"

// Rememberer is what an Agent can be besides: one that remembers. What it was
// asked and what it answered as the root of a run is kept with the conversation;
// an agent that is none is not kept, and reads nothing.
type Rememberer interface {
	Agent
	// Remembers reports whether it does. It never changes.
	Remembers() bool
}

// Remembers reports whether an agent is a Rememberer that does.
func Remembers(a Agent) bool {
	r, ok := a.(Rememberer)
	return ok && r.Remembers()
}

// ConversationID names the conversation of a call to an agent on another server,
// who knows nothing of the owners here: the same for an owner, a context id and a
// path, and another one for anybody else. A run without an owner is a plain
// library's: it is the call's context id.
func (r *Run) ConversationID(req *teamv1.ProcessRequest) string {
	if r.Owner == "" || req.GetContextId() == "" {
		return req.GetContextId()
	}
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(r.Owner+"\x00"+req.GetContextId()+"\x00"+Path(req))).String()
}

// Codes of Noted events that the driver of a run and its agents agree on.
const (
	// NoteTeamPrepared: a team has put its members on record. Details: members (how
	// many), mode, and memory where what it is asked and answers is remembered
	// under its path.
	NoteTeamPrepared = "TEAM_PREPARED"
	// NoteRemembered: the exchange is kept with the conversation.
	NoteRemembered = "REMEMBERED"
	// NoteStorage: something that is not critical could not be read or kept.
	NoteStorage = "STORAGE"
)
