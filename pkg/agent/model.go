package agent

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Model is a language model of one provider. Implementations are in pkg/model. The loop that
// calls them is in pkg/team, which also repeats failed calls; a Model therefore makes a single
// attempt per call. Implementations must be safe for concurrent use.
type Model interface {
	// Name returns the provider's name of the model.
	Name() string
	// Generate requests one turn: the model's next message. It yields chunks of text as they
	// arrive, and last a chunk with the whole Turn and what it cost. If the call fails it yields
	// an *Error last, with Retry, Fresh and Spent set from the provider's response; see Error. It closes
	// its connection and returns when ctx ends or the caller breaks out of the loop. The request
	// must not be modified.
	Generate(ctx context.Context, req *ModelRequest) iter.Seq2[ModelChunk, error]
}

// ProviderNamer is an optional interface of a Model that knows its provider.
type ProviderNamer interface {
	// Provider returns the name of the provider in the conventions of OpenTelemetry for generative AI
	// (gen_ai.provider.name), such as openai; empty if it is not known.
	Provider() string
}

// OutputLimiter is an optional interface of a Model that limits the length of its turns.
type OutputLimiter interface {
	// MaxOutput returns the maximum number of output tokens of one turn, or 0 if it is unknown.
	MaxOutput() int64
}

// ProviderOf returns the name of the provider of a model, empty if it is not known.
func ProviderOf(m Model) string {
	if p, ok := m.(ProviderNamer); ok {
		return p.Provider()
	}
	return ""
}

// DetailRequestBytes is the key, in the details of a CONTEXT_TOO_LONG error of a run, of the size of the texts
// of the request, in bytes.
const DetailRequestBytes = "request_bytes"

// ModelRequest is the input of one turn.
type ModelRequest struct {
	// Agent is the id of the agent that makes the request.
	Agent string
	// Instructions is the system prompt.
	Instructions string
	// Messages holds the conversation so far, oldest first.
	Messages []ModelMessage
	// Tools lists the tools that the model may call.
	Tools []ToolSpec
	// Force is the name of the tool that the model must call. If it is empty, the model chooses.
	Force string
	// Schema is the JSON Schema that the answer should match; nil allows any answer. Providers that cannot
	// do so, or not together with Tools, ignore it, so the caller checks the answer.
	Schema json.RawMessage
	// Key identifies the call for providers that support idempotency keys.
	Key string
	// MaxOutput is the maximum number of output tokens. 0 means the limit of the model.
	MaxOutput int64
	// Lost is the number of earlier attempts at this turn that failed and may be billed. A model with
	// fallbacks begins with the next one after each of them.
	Lost int
	// From is the number of models that a model with fallbacks does not ask, because the answer of the last of
	// them was cut.
	From int
}

// ModelMessage is one message of a conversation with a model.
type ModelMessage struct {
	// Role is the author of the message.
	Role ModelRole
	// Text is the text of the message, or the result of a tool if Role is RoleTool. A line stands
	// in the place of each file.
	Text string
	// Parts is the content of a message with files, in order: parts with text, and files that the
	// model takes. Nil means that the content is Text. Messages with RoleAssistant have none.
	Parts []*a2av1.Part
	// ToolCalls lists the tool calls that the model requested. Only messages with RoleAssistant
	// have any.
	ToolCalls []*teamv1.ToolCall
	// CallID is the id of the tool call that a message with RoleTool answers.
	CallID string
	// Tool is the name of the tool whose result a message with RoleTool holds.
	Tool string
	// State is opaque data that the provider returned with a turn and expects back in the next
	// request, as in Turn.state.
	State []byte
}

// Append adds text at the end of a message with content.
func (m *ModelMessage) Append(text string) {
	if text == "" {
		return
	}
	m.Text += text
	if m.Parts != nil {
		m.Parts = append(slices.Clip(m.Parts), &a2av1.Part{Content: &a2av1.Part_Text{Text: text}})
	}
}

// ModelRole is the author of a message in a conversation with a model.
type ModelRole string

// The roles of messages: the user, the model, and a tool that the model called.
const (
	RoleUser      ModelRole = "user"
	RoleAssistant ModelRole = "assistant"
	RoleTool      ModelRole = "tool"
)

// ModelChunk is one item that Generate yields: either a piece of text, or the complete turn with
// what it cost.
type ModelChunk struct {
	// Text is a piece of the turn's text, to be shown while the turn is being generated.
	Text string
	// Turn is the complete turn, with the whole text. It is set in the last chunk only.
	Turn *teamv1.Turn
	// Spent is what the turn cost. It is set together with Turn. Nil means that the provider did not
	// report it, and Estimated that it reported only a part; the caller then counts what it had
	// reserved for the turn.
	Spent *teamv1.Spent
	// MaxOutput is the limit of output tokens that the request had. It is set together with Turn. 0 means that
	// it had none.
	MaxOutput int64
	// By is the model that answered, if the model has several; nil means that it has not. It is set together
	// with Turn.
	By Model
}
