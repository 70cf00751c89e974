package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Tool is a function that a model can call. Implementations must be safe for concurrent use.
type Tool interface {
	// Spec returns the description of the tool.
	Spec() ToolSpec
	// Call runs the tool. The arguments are JSON as the model wrote it. The key identifies the
	// call and is the same if the call is repeated after a crash. Call should return when ctx
	// ends; if it does not, it is no longer waited for, and its result is discarded. The model
	// sees an error as the result of the tool: the Message of an *Error, but not the text of any
	// other error.
	Call(ctx context.Context, arguments json.RawMessage, key string) (*teamv1.ToolResult, error)
}

// ToolSpec describes a tool to a model.
type ToolSpec struct {
	// Name is at most 64 characters: letters, digits, "_" and "-". See ToolName.
	Name string
	// Description tells the model what the tool does and when to call it.
	Description string
	// Parameters is a JSON Schema for the arguments; its type must be object.
	Parameters json.RawMessage
	// Effect says whether the tool may be called again if the outcome of a call is unknown.
	Effect Effect
}

// Effect describes what happens if the same tool call is made twice. It decides how a call is
// handled whose outcome is unknown after a crash.
type Effect int

// The effects of tools. The zero value is EffectKeyed.
const (
	// EffectKeyed means that the tool recognizes a repeated call by its key and takes effect
	// once. After a crash the call is repeated with the same key.
	EffectKeyed Effect = iota
	// EffectSafe means that the tool changes nothing. After a crash the call is repeated.
	EffectSafe
	// EffectUnsafe means that a second call may take effect a second time. After a crash the call
	// is not repeated: people are asked whether it succeeded.
	EffectUnsafe
)

// ToolSet is a group of tools whose list is not known when the agent is built, such as the tools
// of an MCP server. Implementations must be safe for concurrent use.
type ToolSet interface {
	// Name returns the name of the set, for errors.
	Name() string
	// Tools returns the tools that are available now. A run calls Tools when it needs the list
	// and offers the model that list until its end; a tool that a model calls is looked up by its
	// name.
	Tools(ctx context.Context) ([]Tool, error)
}

// Mailbox is an optional interface of a ToolSet that brings messages of others to the agent that has
// the tools. The agent's next model turn is shown what is unread. Once that turn has ended, it is
// acknowledged.
type Mailbox interface {
	ToolSet
	// Unread returns messages after a number, oldest first, as texts for a model, and the number
	// of the last one. It does not return what was acknowledged, and it need not return everything
	// at once. The number is 0 if there is no message.
	Unread(ctx context.Context, after int64) (texts []string, upTo int64, err error)
	// Acknowledge marks all messages up to a number as read. It may be repeated.
	Acknowledge(ctx context.Context, upTo int64) error
}

// ApprovedTool is a Tool some of whose calls begin only with the approval of people.
type ApprovedTool interface {
	Tool
	// Approvers returns who decides about a call with these arguments, or nil if the call needs no
	// approval. arguments is valid JSON. It is called before every attempt, so it must return the
	// same for the same arguments. It must be safe for concurrent use.
	Approvers(arguments json.RawMessage) *Approvers
}

// Approvers are the people who decide whether a tool call, a delegation or a plan may begin.
type Approvers struct {
	// Roles of these people. Empty means the owner of the task.
	Roles []string
	// Expires is the time after which a call that nobody has decided about is rejected; 0 means 7 days.
	Expires time.Duration
}

// AskingTool is a Tool whose calls may ask people questions before they have a result. Its calls are
// made with CallAsking, not with Call. A ToolSet that has such tools has the method Release as well.
type AskingTool interface {
	Tool
	// CallAsking makes or continues a call. It returns a result, a question for people, or an error
	// as Call does. After a question it is called again with the answer, perhaps much later and in
	// another process. Until then the call need not end: a call that is kept open in this process
	// continues when CallAsking is called with its key.
	CallAsking(ctx context.Context, c ToolCall) (*teamv1.ToolResult, *ToolAsk, error)
	// Release ends the call with a key if it is kept open in this process, because its answer is no
	// longer awaited. It does nothing for other keys, and does not block.
	Release(key string)
}

// ToolCall is a call of an AskingTool.
type ToolCall struct {
	// Arguments and Key are those of Tool.Call.
	Arguments json.RawMessage
	Key       string
	// Answers are the questions that the call has asked so far, in order, with their answers. If it
	// asks the same again after it was begun anew, it is given the recorded answer.
	Answers []AnsweredTool
	// Continue reports whether the last of Answers has just been given, so that the call that asked
	// continues. Otherwise it is begun anew.
	Continue bool
	// Once says that a call that cannot be continued must not be begun anew. The error then has Retry
	// set and not Fresh: it is unknown whether the call had its effect.
	Once bool
	// Repeatable says that the call may be begun anew if it has not ended by the time of the answer,
	// so that the question may stay open longer than the call.
	Repeatable bool
}

// ToolAsk is a question that a call asks.
type ToolAsk struct {
	// Question is what the call asks. Its By is not set.
	Question *teamv1.ToolQuestion
	// State is what is needed to continue the call in any process; nil if only this process can.
	State []byte
	// Plain says that people are asked the message as it is, because it is the agent's own question. If it is not set,
	// the question says which tool of which agent asks.
	Plain bool
	// Approvers are the people who may answer. After Expires the question counts as cancelled.
	Approvers
}

// AnsweredTool is a question that a call has asked, and its answer.
type AnsweredTool struct {
	Question *teamv1.ToolQuestion
	State    []byte
	// Answer is what people answered. If they did not answer in time, Expired is set and the action is
	// CANCEL; the tool may use that only to continue the call that asked.
	Answer  *teamv1.ToolAnswer
	Expired bool
}

// The words with which people decide about an approval.
const (
	WordApprove    = "approve"
	WordApproveAll = "approve all"
	WordReject     = "reject"
)

// HashOf returns the SHA-256 of texts, separated by a zero byte, in hexadecimal.
func HashOf(texts ...string) string {
	h := sha256.New()
	for i, t := range texts {
		if i > 0 {
			h.Write([]byte{0})
		}
		h.Write([]byte(t))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// maxToolName is the maximum number of characters in the name of a tool.
const maxToolName = 64

// ToolName turns name into a valid name of a tool: at most 64 letters, digits, "_" and "-". Each
// byte of other characters becomes "_". A longer name is truncated and ends in a hash of the
// whole. A valid name is returned unchanged.
func ToolName(name string) string {
	b := []byte(name)
	for i, c := range b {
		if !toolChar(c) {
			b[i] = '_'
		}
	}
	if len(b) > maxToolName {
		sum := sha256.Sum256([]byte(name))
		b = append(b[:maxToolName-9], "_"+hex.EncodeToString(sum[:4])...)
	}
	return string(b)
}

// ToolParameters returns the JSON Schema of a tool's arguments in a form that all providers of models accept: an object
// with properties, of which there may be none, and each of which has a schema that is an object. It accepts the same
// arguments, if they are an object.
func ToolParameters(schema json.RawMessage) json.RawMessage {
	var keys, properties map[string]json.RawMessage
	_ = json.Unmarshal(schema, &keys)
	_ = json.Unmarshal(keys["properties"], &properties)
	changed := properties == nil || keys["type"] == nil
	for name, of := range properties {
		if string(of) == "true" {
			properties[name], changed = json.RawMessage("{}"), true
		}
	}
	if !changed {
		return schema
	}
	out := map[string]any{"type": "object", "properties": properties}
	if properties == nil {
		out["properties"] = map[string]any{}
	}
	for key, value := range keys {
		if _, set := out[key]; !set || key == "type" && string(value) != "null" {
			out[key] = value
		}
	}
	whole, err := json.Marshal(out)
	if err != nil {
		return schema
	}
	return whole
}

// toolChar reports whether c may appear in the name of a tool.
func toolChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
