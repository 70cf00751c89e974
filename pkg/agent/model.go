package agent

import (
	"context"
	"encoding/json"
	"iter"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Model answers turns. Implementations are in pkg/model; the loop that calls
// them is in pkg/team, which also repeats failed calls: a Model makes one
// attempt. Safe for concurrent use.
type Model interface {
	// Name is the model's name at its provider.
	Name() string
	// Generate makes one turn. It yields pieces of text as they come and the
	// whole Turn last; or an *Error, with Retry and Fresh set as the provider's
	// answer allows. It ends with ctx or when the caller breaks, closing its
	// connection.
	Generate(ctx context.Context, req *ModelRequest) iter.Seq2[ModelChunk, error]
}

// ModelRequest is what a model sees.
type ModelRequest struct {
	// Agent is the id of the agent that asks.
	Agent string
	// Instructions are the system text.
	Instructions string
	// Messages are the conversation, oldest first.
	Messages []ModelMessage
	// Tools may be called.
	Tools []ToolSpec
	// Force names the tool that must be called; empty leaves it to the model.
	Force string
	// Key makes the call unique, for providers that know idempotency keys.
	Key string
	// MaxOutput is how many tokens the answer may have; 0 is the model's own limit.
	MaxOutput int64
}

// ModelMessage is one entry of the conversation.
type ModelMessage struct {
	// Role is who speaks.
	Role ModelRole
	// Text is what is said.
	Text string
	// ToolCalls are the calls of an assistant's turn.
	ToolCalls []*teamv1.ToolCall
	// CallID is the call that a tool's message answers.
	CallID string
	// Tool is the name of the tool that a tool's message is of.
	Tool string
	// State is what the provider gave with an assistant's turn; see Turn.state.
	State []byte
}

// ModelRole is who speaks in a conversation with a model.
type ModelRole string

// The roles.
const (
	RoleUser      ModelRole = "user"
	RoleAssistant ModelRole = "assistant"
	RoleTool      ModelRole = "tool"
)

// ModelChunk is a piece of text, or the whole turn and what it cost.
type ModelChunk struct {
	// Text is streamed text.
	Text string
	// Turn is the whole answer; set in the last chunk only.
	Turn *teamv1.Turn
	// Spent is what the turn cost; set with Turn.
	Spent *teamv1.Spent
}

// ToolSpec is a tool as a model sees it.
type ToolSpec struct {
	// Name has at most 64 letters, digits, "_" and "-".
	Name string
	// Description tells the model when to call it.
	Description string
	// Parameters is a JSON Schema of type object.
	Parameters json.RawMessage
	// Effect says what a second call of it means.
	Effect Effect
}

// Effect is what calling a tool twice means. It decides what becomes of a call
// whose outcome is unknown after a crash.
type Effect int

// The effects.
const (
	// EffectKeyed: the tool knows a call by its key and has its effect once. It is called again.
	EffectKeyed Effect = iota
	// EffectSafe: it changes nothing. It is called again.
	EffectSafe
	// EffectUnsafe: people are asked what became of the call.
	EffectUnsafe
)

// Tool is something a model can call. Safe for concurrent use.
type Tool interface {
	// Spec describes the tool.
	Spec() ToolSpec
	// Call runs it. key is the same when a call is repeated after a crash. It
	// should end with ctx; when it does not, it is left behind and its late result
	// is dropped.
	// An error goes back to the model as the tool's result: an *Error with its
	// message, any other without its text.
	Call(ctx context.Context, arguments json.RawMessage, key string) (*teamv1.ToolResult, error)
}
