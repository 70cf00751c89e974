package agent

import (
	"context"
	"encoding/json"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

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
