package openai

import (
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/taskstate"
)

// response is the answer to a request for a response. The SDKs declare fields that the door has nothing to say about as
// required.
type response struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created_at"`
	Status  string `json:"status"`
	echo
	Error      *responseError    `json:"error"`
	Incomplete map[string]string `json:"incomplete_details"`
	Output     []item            `json:"output"`
	Usage      *responseUsage    `json:"usage"`
	TaskID     string            `json:"task_id"`

	Instructions *string  `json:"instructions"`
	Parallel     bool     `json:"parallel_tool_calls"`
	ToolChoice   string   `json:"tool_choice"`
	Tools        []string `json:"tools"`
	Temperature  *float64 `json:"temperature"`
	TopP         *float64 `json:"top_p"`
}

// item is the message of the assistant.
type item struct {
	ID      string       `json:"id"`
	Type    string       `json:"type"`
	Status  string       `json:"status"`
	Role    string       `json:"role"`
	Content []outputText `json:"content"`
}

type outputText struct {
	Type        string   `json:"type"`
	Text        string   `json:"text"`
	Annotations []string `json:"annotations"`
}

// responseError says why a response has failed. Clients repeat most codes; those of the door are the ones that no client
// repeats, and the reason is beside them.
type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Reason  string `json:"reason"`
}

type responseUsage struct {
	Input     int64 `json:"input_tokens"`
	InputMore struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output     int64 `json:"output_tokens"`
	OutputMore struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int64 `json:"total_tokens"`
}

// The states of responses and of their messages.
const (
	queued     = "queued"
	inProgress = "in_progress"
	completed  = "completed"
	incomplete = "incomplete"
	failed     = "failed"
	cancelled  = "cancelled"
)

// stateOf returns the state of the response that an answer is.
func stateOf(a *answer) string {
	switch state := a.status.GetState(); {
	case a.failed() != nil && state == a2av1.TaskState_TASK_STATE_CANCELED:
		return cancelled
	case a.failed() != nil:
		return failed
	case a.cut() != "" && taskstate.Final(state):
		return incomplete
	case taskstate.Final(state), taskstate.Interrupted(state):
		return completed
	case state == a2av1.TaskState_TASK_STATE_SUBMITTED:
		return queued
	}
	return inProgress
}

// responseForm gives an answer as a response, or as the events of one. The number of an event is made of what comes before it:
// so it is the same whenever the stream is sent, and by whichever server.
type responseForm struct {
	at place
	echo
	behind int64 // number of the last event that the client has; -1 without one
}

// The numbers of the events before the text. An event with a piece of the text has textStart and the bytes up to its end.
const (
	createdEvent = iota
	inProgressEvent
	itemEvent
	partEvent

	textStart = partEvent
)

// object returns the response in a state.
func (f *responseForm) object(a *answer, state string) *response {
	r := &response{
		ID: responseID(a.task, f.at), Object: "response", Created: f.created(a).Unix(), Status: state, echo: f.echo, TaskID: a.task, Output: []item{},
		Parallel: true, ToolChoice: "auto", Tools: []string{},
	}
	switch state {
	case queued, inProgress:
		return r
	case incomplete:
		r.Incomplete = map[string]string{"reason": map[string]string{byLength: "max_output_tokens", byFilter: "content_filter"}[a.cut()]}
	case failed, cancelled:
		r.Error = errorOf(a.failed())
	}
	if state == completed || a.said() != "" {
		r.Output = append(r.Output, f.item(a, state))
	}
	s := a.spent()
	r.Usage = &responseUsage{Input: s.input, Output: s.output, Total: s.input + s.output}
	r.Usage.InputMore.Cached, r.Usage.OutputMore.Reasoning = s.cached, s.reasoning
	return r
}

// created returns when the message of the response was sent first.
func (f *responseForm) created(a *answer) time.Time {
	at := f.at
	at.task = a.task
	return at.created()
}

// item returns the message of the assistant in a response in a state.
func (f *responseForm) item(a *answer, state string) item {
	if state != inProgress && state != completed {
		state = incomplete
	}
	return item{ID: "msg_" + responseID(a.task, f.at)[len(responseMark):], Type: "message", Role: "assistant", Status: state, Content: []outputText{textOf(a.said())}}
}

func textOf(text string) outputText {
	return outputText{Type: "output_text", Text: text, Annotations: []string{}}
}

// errorOf returns why a response has failed.
func errorOf(st *status.Status) *responseError {
	of := faultOf(st)
	e := &responseError{Code: "invalid_prompt", Message: of.Message, Reason: of.Code}
	if of.Type == "insufficient_quota" {
		e.Code = of.Type
	}
	return e
}

func (f *responseForm) whole(a *answer) any { return f.object(a, stateOf(a)) }

func (f *responseForm) broken(a *answer, st *status.Status) any {
	if a == nil || a.failed() == nil {
		return failure{faultOf(st)}
	}
	return f.whole(a)
}

// list returns the events that the client does not have, of numbers with their kinds and contents.
type numbered struct {
	number int64
	kind   string
	with   map[string]any
}

func (f *responseForm) list(all ...numbered) (list []event) {
	for _, of := range all {
		if of.number <= f.behind {
			continue
		}
		of.with["type"], of.with["sequence_number"] = of.kind, of.number
		list = append(list, event{of.kind, encode(of.with)})
	}
	return list
}

func (f *responseForm) opening(a *answer) []event {
	now := f.object(a, inProgress)
	return f.list(
		numbered{createdEvent, "response.created", map[string]any{"response": now}},
		numbered{inProgressEvent, "response.in_progress", map[string]any{"response": now}},
	)
}

// waiting repeats the state, with the number of the event before it.
func (f *responseForm) waiting(a *answer, sent int) []event {
	n := int64(inProgressEvent)
	if sent > 0 {
		n = textStart + int64(sent)
	}
	return (&responseForm{at: f.at, echo: f.echo, behind: -1}).list(numbered{n, "response.in_progress", map[string]any{"response": f.object(a, inProgress)}})
}

// item returns the events that begin the message.
func (f *responseForm) begin(a *answer) []event {
	of := f.item(a, inProgress)
	of.Content = []outputText{}
	return f.list(
		numbered{itemEvent, "response.output_item.added", map[string]any{"output_index": 0, "item": of}},
		numbered{partEvent, "response.content_part.added", f.part(a, map[string]any{"part": textOf("")})},
	)
}

// part adds to an event which part of the message it is about.
func (f *responseForm) part(a *answer, with map[string]any) map[string]any {
	with["item_id"], with["output_index"], with["content_index"] = f.item(a, inProgress).ID, 0, 0
	return with
}

func (f *responseForm) piece(a *answer, sent int) (list []event) {
	text := a.said()
	if sent == 0 {
		list = f.begin(a)
	}
	from := min(max(sent, int(f.behind)-textStart), len(text)) // a piece may be longer than when it was sent first
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	with := map[string]any{"delta": text[from:], "logprobs": []string{}}
	return append(list, f.list(numbered{textStart + int64(len(text)), "response.output_text.delta", f.part(a, with)})...)
}

func (f *responseForm) ending(a *answer, st *status.Status) (list []event) {
	n, state := textStart+int64(len(a.said())), stateOf(a)
	if st != nil && a.failed() == nil { // the stream has failed, not its task
		of := errorOf(st)
		f.behind = min(f.behind, n-1)
		return f.list(numbered{n, "error", map[string]any{"code": of.Code, "message": of.Message, "param": nil}})
	}
	if a.said() != "" || state == completed {
		if a.said() == "" {
			list = f.begin(a)
		}
		of := f.item(a, state)
		list = append(list, f.list(
			numbered{n + 1, "response.output_text.done", f.part(a, map[string]any{"text": a.said(), "logprobs": []string{}})},
			numbered{n + 2, "response.content_part.done", f.part(a, map[string]any{"part": of.Content[0]})},
			numbered{n + 3, "response.output_item.done", map[string]any{"output_index": 0, "item": of}},
		)...)
	}
	kind := map[string]string{completed: "response.completed", incomplete: "response.incomplete"}[state]
	if kind == "" {
		kind = "response.failed"
	}
	return append(list, f.list(numbered{n + 4, kind, map[string]any{"response": f.object(a, state)}})...)
}
