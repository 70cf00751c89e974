package openai

import (
	"encoding/json"
	"regexp"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// The roles of messages.
const (
	roleSystem    = "system"
	roleUser      = "user"
	roleAssistant = "assistant"
)

// request converts a request, without what the endpoint has refused.
func (m *Model) request(req *agent.ModelRequest, without map[string]bool) *request {
	s := m.config.Settings
	if s == nil {
		s = &teamv1.ModelSettings{}
	}
	r := &request{
		Model: m.config.Name, Stream: true, Messages: m.messages(req, without),
		Temperature: s.Temperature, TopP: s.TopP, Seed: s.Seed, Stop: s.GetStop(), ReasoningEffort: s.GetReasoningEffort(),
	}
	if !without[usageInStream] {
		r.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if n := m.config.Output(req.MaxOutput); m.completionTokens() || without[maxTokens] {
		r.MaxCompletionTokens = n
	} else {
		r.MaxTokens = n
	}
	for _, t := range req.Tools {
		r.Tools = append(r.Tools, declaration(t))
	}
	if len(req.Tools) > 0 { // it is refused without tools
		r.ParallelToolCalls = s.ParallelToolCalls
	}
	if req.Force != "" {
		r.ToolChoice = &toolChoice{Type: "function"}
		r.ToolChoice.Function.Name = req.Force
	}
	r.ResponseFormat = m.format(req, without)
	return r
}

// format returns the format of the answer. Together with tools it is only sent to OpenAI: other endpoints
// keep a model to the format that wants to call a tool, so that it cannot.
func (m *Model) format(req *agent.ModelRequest, without map[string]bool) *responseFormat {
	switch {
	case len(req.Schema) == 0, len(req.Tools) > 0 && !m.isOpenAI():
		return nil
	case !without[jsonSchema+string(req.Schema)]:
		return &responseFormat{Type: "json_schema", JSONSchema: &namedSchema{Name: "answer", Schema: req.Schema}}
	case !without[jsonObject+string(req.Schema)]:
		return &responseFormat{Type: "json_object", Schema: req.Schema}
	}
	return nil
}

// isOpenAI reports whether the endpoint is OpenAI's own.
func (m *Model) isOpenAI() bool { return strings.HasPrefix(m.config.BaseURL, DefaultBaseURL) }

// completionTokens reports whether the limit is sent as max_completion_tokens. OpenAI requires
// that, also for its models behind a gateway. All other endpoints support max_tokens, and some of
// them only that.
func (m *Model) completionTokens() bool {
	name := m.config.Name[strings.LastIndex(m.config.Name, "/")+1:]
	return m.isOpenAI() || reasoning.MatchString(name)
}

// reasoning matches the models of OpenAI that reject max_tokens.
var reasoning = regexp.MustCompile(`^(o\d|gpt-[5-9])`)

// messages converts the conversation. Chat templates of Gemma, Mistral and Llama 2 require that it begins
// with the user and that the roles alternate, so messages of one role in a row become one.
func (m *Model) messages(req *agent.ModelRequest, without map[string]bool) []*message {
	w := writer{model: m, without: without, out: make([]*message, 0, len(req.Messages)+1)}
	if req.Instructions != "" && !without[systemRole] {
		w.out = append(w.out, &message{Role: roleSystem, Content: req.Instructions})
	}
	w.first = len(w.out)
	if req.Instructions != "" && without[systemRole] {
		w.add(&message{Role: roleUser, Content: req.Instructions})
	}
	for _, msg := range req.Messages {
		w.message(&msg)
	}
	w.flush()
	return w.out
}

// writer writes the messages of a request.
type writer struct {
	model   *Model
	without map[string]bool
	out     []*message
	first   int    // index of the first message of the conversation
	later   []part // the files of results, which follow the last result of a turn as a message of the user
}

// message converts a message.
func (w *writer) message(msg *agent.ModelMessage) {
	switch msg.Role {
	case agent.RoleTool:
		w.out = append(w.out, &message{Role: "tool", Content: model.Text(msg.Text), ToolCallID: msg.CallID})
		w.later = append(w.later, filesOfResult(msg)...)
	case agent.RoleAssistant:
		w.flush()
		w.add(w.assistant(msg))
	default:
		w.flush()
		if msg.Parts != nil {
			w.add(&message{Role: roleUser, Content: contents(msg.Parts)})
			return
		}
		w.add(&message{Role: roleUser, Content: model.Text(msg.Text)})
	}
}

// flush writes the files of results.
func (w *writer) flush() {
	if len(w.later) > 0 {
		w.add(&message{Role: roleUser, Content: w.later})
		w.later = nil
	}
}

// add appends a message of the user or the assistant, or continues the last one if it has the same role.
func (w *writer) add(msg *message) {
	if len(w.out) == w.first && msg.Role == roleAssistant {
		w.out = append(w.out, &message{Role: roleUser, Content: model.Nothing})
	}
	if n := len(w.out); n > w.first && w.out[n-1].Role == msg.Role && w.out[n-1].ToolCalls == nil && w.out[n-1].more == nil {
		last := w.out[n-1]
		last.Content, last.ToolCalls, last.more = join(last.Content, msg.Content), msg.ToolCalls, msg.more
		return
	}
	w.out = append(w.out, msg)
}

// join returns the contents of two messages as one.
func join(a, b any) any {
	x, ok := a.(string)
	y, both := b.(string)
	switch {
	case b == nil, ok && both && y == "":
		return a
	case ok && both:
		return x + "\n\n" + y
	}
	return append(partsOf(a), partsOf(b)...)
}

// assistant converts a turn, with what the endpoint has sent beside its calls. A turn with calls has an
// empty content, because some chat templates fail without one.
func (w *writer) assistant(msg *agent.ModelMessage) *message {
	out := &message{Role: roleAssistant, Content: model.Text(msg.Text)}
	if len(msg.ToolCalls) == 0 {
		return out
	}
	if out.Content = msg.Text; msg.Text == "" && w.without[emptyContent] {
		out.Content = nil
	}
	var e echo
	if !w.without[beside] && model.UnpackState(msg.State, provider, w.model.config.Name, &e) {
		out.more = e.Message
		if len(e.Content) > 0 {
			out.Content = e.Content
		}
	}
	if _, ok := out.more[reasoningContent]; !ok && w.without[noReasoning] { // of a turn of another model
		out.more = fields{reasoningContent: json.RawMessage(`"` + model.Nothing + `"`)}
	}
	for i, c := range msg.ToolCalls {
		call := convert(c)
		if i < len(e.Calls) {
			call.more = e.Calls[i]
		}
		out.ToolCalls = append(out.ToolCalls, call)
	}
	return out
}

func convert(c *teamv1.ToolCall) toolCall {
	arguments := c.GetArguments()
	if arguments == "" {
		arguments = "{}"
	}
	return toolCall{ID: c.GetId(), Type: "function", Function: functionCall{Name: c.GetName(), Arguments: arguments}}
}

func declaration(t agent.ToolSpec) tool {
	parameters := t.Parameters
	if len(parameters) == 0 {
		parameters = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return tool{Type: "function", Function: function{Name: t.Name, Description: t.Description, Parameters: parameters}}
}
