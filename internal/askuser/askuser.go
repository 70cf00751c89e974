// Package askuser is the built-in tool with which an agent with a model asks the user a question in the middle of a run.
// The task becomes INPUT_REQUIRED with the question, and the answer is the tool's result.
package askuser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Name is the name of the tool, in the configuration file and for models.
const Name = "ask_user"

// Tool asks questions. The zero value is ready to use. It is safe for concurrent use.
type Tool struct{}

var _ agent.AskingTool = Tool{}

// arguments are what a model gives.
type arguments struct {
	Question string   `json:"question"`
	Options  []string `json:"options"`
}

// answer is the only field of the form that people fill in.
type answer struct {
	Answer string `json:"answer"`
}

// Spec implements agent.Tool.
func (Tool) Spec() agent.ToolSpec {
	return agent.ToolSpec{
		Name: Name, Effect: agent.EffectSafe,
		Description: "Asks the user a question and waits for the answer. Use it only for what you need to go on and cannot find out otherwise.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"question":{"type":"string","description":"The question, which the user must understand without knowing what you have done so far."},` +
			`"options":{"type":"array","items":{"type":"string"},"description":"Answers to choose from; leave it out for any answer."}},` +
			`"required":["question"]}`),
	}
}

// Call implements agent.Tool. It is never called, because calls of an AskingTool are made with CallAsking.
func (Tool) Call(context.Context, json.RawMessage, string) (*teamv1.ToolResult, error) {
	return nil, errors.New("askuser: the tool needs people to answer")
}

// maxQuestion is the maximum number of bytes of a question with its options.
const maxQuestion = 4000

// CallAsking implements agent.AskingTool. The result of wrong arguments tells the model what is wrong with them.
func (Tool) CallAsking(_ context.Context, c agent.ToolCall) (*teamv1.ToolResult, *agent.ToolAsk, error) {
	if n := len(c.Answers); n > 0 {
		return resultOf(c.Answers[n-1]), nil, nil
	}
	var args arguments
	readable := json.Unmarshal(c.Arguments, &args) == nil
	switch n := len(args.Question) + len(strings.Join(args.Options, "")); {
	case !readable:
		return wrong("the arguments must be an object with question, a text, and options, a list of texts"), nil, nil
	case strings.TrimSpace(args.Question) == "":
		return wrong("question is empty; write what you want to know"), nil, nil
	case n > maxQuestion:
		return wrong(fmt.Sprintf("the question and its options have %d bytes; at most %d are allowed", n, maxQuestion)), nil, nil
	}
	schema, err := schemaOf(args.Options)
	if err != nil {
		return nil, nil, err
	}
	q := &teamv1.ToolQuestion{Tool: Name, Message: args.Question, Schema: schema}
	q.Hash = agent.HashOf(q.GetMessage(), q.GetSchema(), q.GetUrl())
	return nil, &agent.ToolAsk{Question: q, Plain: true}, nil
}

func wrong(text string) *teamv1.ToolResult { return &teamv1.ToolResult{Text: text, IsError: true} }

// Release implements agent.AskingTool. No call is kept open.
func (Tool) Release(string) {}

// schemaOf returns the form of an answer.
func schemaOf(options []string) (string, error) {
	field := map[string]any{"type": "string"}
	if len(options) > 0 {
		field["enum"] = options
	}
	b, err := json.Marshal(map[string]any{"type": "object", "properties": map[string]any{"answer": field}, "required": []string{"answer"}})
	return string(b), err
}

// resultOf returns what the model is told of an answer.
func resultOf(a agent.AnsweredTool) *teamv1.ToolResult {
	var given answer
	switch {
	case a.Expired:
		return &teamv1.ToolResult{Text: "The user did not answer in time."}
	case a.Answer.GetAction() == teamv1.ToolAnswer_ACTION_DECLINE:
		return &teamv1.ToolResult{Text: "The user does not want to answer."}
	case a.Answer.GetAction() != teamv1.ToolAnswer_ACTION_ACCEPT || json.Unmarshal([]byte(a.Answer.GetContent()), &given) != nil:
		return &teamv1.ToolResult{Text: "The user dismissed the question."}
	}
	return &teamv1.ToolResult{Text: given.Answer}
}
