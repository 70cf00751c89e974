package openai

import (
	"encoding/json"
	"net/http"

	"google.golang.org/grpc/status"
)

// completion is the answer to a request for a chat completion, or a chunk of one.
type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
	TaskID  string   `json:"task_id,omitempty"`
}

type choice struct {
	Index   int     `json:"index"`
	Message *said   `json:"message,omitempty"`
	Delta   *delta  `json:"delta,omitempty"`
	Finish  *string `json:"finish_reason"`
}

// said is the message of the assistant.
type said struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

// delta is a piece of the message of the assistant.
type delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// usage is what a task has spent.
type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	PromptMore struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionMore struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// chat serves POST /v1/chat/completions.
func (d *Door) chat(w http.ResponseWriter, r *http.Request, _ map[string]string, body []byte) {
	req, err := readChat(body)
	if err != nil {
		fail(w, err)
		return
	}
	d.answer(w, r, &req.ask, body, func(at place) form {
		return &chatForm{head: completion{ID: "chatcmpl-" + at.message, Created: at.created().Unix(), Model: req.Model}, usage: req.Options.IncludeUsage}
	})
}

// chatForm gives an answer as a chat completion, or as chunks of one.
type chatForm struct {
	head  completion // without choices
	usage bool       // a stream ends with the usage
}

// usageOf returns what a task has spent.
func usageOf(a *answer) *usage {
	s := a.spent()
	u := &usage{Prompt: s.input, Completion: s.output, Total: s.input + s.output}
	u.PromptMore.Cached, u.CompletionMore.Reasoning = s.cached, s.reasoning
	return u
}

// finishOf returns why an answer has ended.
func finishOf(a *answer) *string {
	if why := a.cut(); why != "" {
		return &why
	}
	return new("stop")
}

func (c *chatForm) whole(a *answer) any {
	all := c.head
	all.Object, all.Usage, all.TaskID = "chat.completion", usageOf(a), a.task
	all.Choices = []choice{{Message: &said{Role: "assistant", Content: a.said()}, Finish: finishOf(a)}}
	return all
}

func (*chatForm) broken(_ *answer, st *status.Status) any { return failure{faultOf(st)} }

// chunk returns a chunk with one piece of the message.
func (c *chatForm) chunk(d delta, finish *string) event {
	chunk := c.head
	chunk.Object, chunk.Choices = "chat.completion.chunk", []choice{{Delta: &d, Finish: finish}}
	return event{data: encode(chunk)}
}

func (c *chatForm) opening(*answer) []event {
	return []event{c.chunk(delta{Role: "assistant", Content: new("")}, nil)}
}

func (c *chatForm) waiting(*answer, int) []event { return []event{c.chunk(delta{}, nil)} }

func (c *chatForm) piece(a *answer, sent int) []event {
	return []event{c.chunk(delta{Content: new(a.said()[sent:])}, nil)}
}

func (c *chatForm) ending(a *answer, st *status.Status) (list []event) {
	if st != nil {
		return []event{{data: failureJSON(st)}, {data: []byte("[DONE]")}}
	}
	list = append(list, c.chunk(delta{}, finishOf(a)))
	if c.usage {
		last := c.head
		last.Object, last.Choices, last.Usage, last.TaskID = "chat.completion.chunk", []choice{}, usageOf(a), a.task
		list = append(list, event{data: encode(last)})
	}
	return append(list, event{data: []byte("[DONE]")})
}

// encode returns the JSON of an answer.
func encode(v any) []byte {
	b, _ := json.Marshal(v) // what the door sends always encodes
	return b
}
