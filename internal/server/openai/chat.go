package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/wire"
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

// chat serves POST /v1/chat/completions.
func (d *Door) chat(w http.ResponseWriter, r *http.Request, _ map[string]string, body []byte) {
	r = r.WithContext(call.Translated(r.Context()))
	req, err := readChat(body)
	if err != nil {
		fail(w, err)
		return
	}
	t, err := d.turnOf(r.Header, req, body)
	if err != nil {
		fail(w, err)
		return
	}
	at, err := d.place(r.Context(), t)
	if err != nil {
		fail(w, err)
		return
	}
	waits := d.open.enter(at.message)
	serve := d.whole
	if req.Stream {
		serve = d.stream
	}
	answered := serve(w, r, req, t, at)
	d.open.leave(at.message, waits, answered && r.Context().Err() == nil)
	if r.Context().Err() != nil && !answered && d.config.Settings.GetCancelOnDisconnect() && !d.open.waits(at.message) {
		d.cancel(context.WithoutCancel(r.Context()), t, at)
	}
}

// head returns a completion without choices.
func head(req *chatRequest, at place, object string) completion {
	return completion{ID: "chatcmpl-" + at.message, Object: object, Created: time.Now().Unix(), Model: req.Model}
}

// whole answers a request with one completion, when its task has ended or asks. It reports whether the caller has got it.
func (d *Door) whole(w http.ResponseWriter, r *http.Request, req *chatRequest, t *turn, at place) bool {
	out := &patient{w: w}
	out.begin()
	resp, err := d.tasks.SendMessage(t.send(r.Context(), at))
	begun := out.stop()
	a := &answer{base: call.InboundOf(r.Context()).BaseURL()}
	if err == nil {
		a.take(resp.GetTask())
		err = a.failed().Err()
	}
	switch {
	case err != nil && begun:
		call.LimitWrite(w)
		_, _ = w.Write(failureJSON(wire.Status(err))) //nolint:gosec // JSON, with its media type; the caller may have disconnected
		return false
	case err != nil:
		fail(w, err)
		return false
	}
	c := head(req, at, "chat.completion")
	c.Choices = []choice{{Message: &said{Role: "assistant", Content: a.text.String()}, Finish: new("stop")}}
	c.Usage, c.TaskID = a.usage(), a.task
	reply(w, c)
	return true
}

// cancel cancels the task of a message whose caller has disconnected.
func (d *Door) cancel(ctx context.Context, t *turn, at place) {
	ctx, cancel := context.WithTimeout(ctx, call.QuickTime)
	defer cancel()
	tasks, err := d.inContext(ctx, t, at.context)
	if err != nil {
		return
	}
	for _, task := range tasks {
		if slices.ContainsFunc(task.GetHistory(), func(m *a2av1.Message) bool { return m.GetMessageId() == at.message }) {
			_, _ = d.tasks.CancelTask(ctx, &a2av1.CancelTaskRequest{Tenant: t.model, Id: task.GetId()}) // the caller has gone
		}
	}
}

// encode returns the JSON of an answer.
func encode(v any) []byte {
	b, _ := json.Marshal(v) // what the door sends always encodes
	return b
}
