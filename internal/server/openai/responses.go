package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// responsesRequest is a request for a response.
type responsesRequest struct {
	ask
	Input        input        `json:"input"`
	Instructions content      `json:"instructions"`
	Background   bool         `json:"background"`
	Previous     string       `json:"previous_response_id"`
	Conversation conversation `json:"conversation"`
}

// input holds the messages of an input; items of other types, such as calls of tools, are left out.
type input []message

// UnmarshalJSON implements json.Unmarshaler.
func (in *input) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*in = input{{Role: "user", Content: content{textPart(text)}}}
		return nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(b, &items); err != nil {
		return errors.New("input must be a text or a list of items")
	}
	for _, item := range items {
		var is struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(item, &is) == nil && is.Type != "" && is.Type != "message" {
			continue
		}
		var m message
		if err := json.Unmarshal(item, &m); err != nil {
			return err
		}
		*in = append(*in, m)
	}
	return nil
}

// conversation is the id of a conversation, as a text or in an object.
type conversation string

// UnmarshalJSON implements json.Unmarshaler.
func (c *conversation) UnmarshalJSON(b []byte) error {
	var of struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(b, (*string)(c)) == nil {
		return nil
	}
	err := json.Unmarshal(b, &of)
	*c = conversation(of.ID)
	return err
}

// readResponses reads a request for a response.
func readResponses(body []byte) (*responsesRequest, error) {
	req := &responsesRequest{}
	if err := decode(body, req); err != nil {
		return nil, err
	}
	req.field, req.all, req.conversation, req.previous, req.background = "input", req.Input, string(req.Conversation), req.Previous, req.Background
	if len(req.Instructions) > 0 {
		req.all = append([]message{{Role: "system", Content: req.Instructions}}, req.all...)
	}
	var err error
	if req.echo, err = echoOf(req); err != nil {
		return nil, err
	}
	return req, req.check()
}

// echoKey is the key under which the metadata of a message keep what its response repeats of the request.
const echoKey = "openai"

// echo is what a response repeats of its request.
type echo struct {
	Model      string         `json:"model"`
	Previous   *string        `json:"previous_response_id"`
	Metadata   map[string]any `json:"metadata"`
	Background bool           `json:"background"`
}

// echoOf returns the metadata of a message with what its response repeats.
func echoOf(req *responsesRequest) (*structpb.Struct, error) {
	of := map[string]any{"model": req.Model, "background": req.background}
	if req.previous != "" {
		of["previous_response_id"] = req.previous
	}
	if len(req.Metadata) > 0 {
		of["metadata"] = req.Metadata
	}
	s, err := structpb.NewStruct(map[string]any{echoKey: of})
	if err != nil {
		return nil, wire.Invalid("metadata", "must be texts by name")
	}
	return s, nil
}

// echoed returns what a response repeats of its request, by the message of the task.
func echoed(m *a2av1.Message) (e echo) {
	if b, err := m.GetMetadata().GetFields()[echoKey].MarshalJSON(); err == nil {
		_ = json.Unmarshal(b, &e) // the message may come from a client of another binding
	}
	if e.Metadata == nil {
		e.Metadata = map[string]any{}
	}
	return e
}

// create serves POST /v1/responses.
func (d *Door) create(w http.ResponseWriter, r *http.Request, _ map[string]string, body []byte) {
	req, err := readResponses(body)
	if err != nil {
		fail(w, err)
		return
	}
	d.answer(w, r, &req.ask, body, func(at place) form {
		return &responseForm{at: at, echo: echoed(&a2av1.Message{Metadata: req.echo}), behind: -1}
	})
}

// responseMark is how the ids of responses begin. The id of the task follows and, if the response is not to its first message,
// how far the task was when it got the message.
const responseMark = "resp_"

// responseID returns the id of the response to a message of a task.
func responseID(task string, at place) string {
	id := responseMark + task
	if at.after > 0 {
		id += "_" + strconv.FormatInt(at.after, 10)
	}
	return id
}

// find returns the task of a response and the place of its message.
func (d *Door) find(ctx context.Context, id string) (*a2av1.Task, place, error) {
	name, ok := strings.CutPrefix(id, responseMark)
	name, behind, answers := strings.Cut(name, "_")
	at := place{task: name}
	var err error
	if answers {
		at.after, err = strconv.ParseInt(behind, 10, 64)
	}
	unknown := agent.Errorf(agent.CodeNotFound, a2aerror.ReasonTaskNotFound, "response %.80q does not exist", id)
	if !ok || err != nil || at.after < 0 {
		return nil, at, unknown
	}
	task, err := d.tasks.GetTask(ctx, &a2av1.GetTaskRequest{Id: name})
	if err != nil {
		if status.Code(err) == codes.NotFound || status.Code(err) == codes.InvalidArgument {
			err = unknown
		}
		return nil, at, err
	}
	at.context = task.GetContextId()
	i := slices.IndexFunc(task.GetHistory(), func(m *a2av1.Message) bool {
		_, after, own := own(m.GetMessageId())
		return at.after == 0 || own && after == at.after
	})
	if i < 0 && (at.after > project.RunOf(task.GetMetadata()).GetSeq() || taskstate.Final(task.GetStatus().GetState())) {
		return nil, at, unknown
	}
	if i >= 0 {
		at.message = task.GetHistory()[i].GetMessageId()
	}
	return task, at, nil
}

// formOf returns the form of an existing response.
func formOf(task *a2av1.Task, at place) *responseForm {
	var of *a2av1.Message
	if list := task.GetHistory(); len(list) > 0 {
		of = list[max(indexOf(task, at.message), 0)] // the first one names the model, too
	}
	return &responseForm{at: at, echo: echoed(of), behind: -1}
}

// retrieve serves GET /v1/responses/{id}: a response as it is, or its stream.
func (d *Door) retrieve(w http.ResponseWriter, r *http.Request, params map[string]string, _ []byte) {
	ctx := call.Translated(r.Context())
	behind, err := call.Number("starting_after", r.URL.Query()["starting_after"])
	if err != nil {
		fail(w, err)
		return
	}
	task, at, err := d.find(ctx, params["id"])
	if err != nil {
		fail(w, err)
		return
	}
	f := formOf(task, at)
	if streams, _ := strconv.ParseBool(r.URL.Query().Get("stream")); !streams {
		d.show(ctx, w, task, at, f)
		return
	}
	if r.URL.Query().Get("starting_after") != "" {
		f.behind = behind
	}
	to := d.follow(ctx, at)
	to.ctx, to.req = call.Resumed(ctx, everything), &a2av1.SubscribeToTaskRequest{Id: task.GetId()}
	to.to = &events{form: f, early: true}
	d.relay(w, a2av1.A2AService_SubscribeToTask_FullMethodName, to)
}

// show answers with a response as it is.
func (d *Door) show(ctx context.Context, w http.ResponseWriter, task *a2av1.Task, at place, f form) {
	a, err := d.said(ctx, task, at)
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, f.whole(a))
}

// cancelResponse serves POST /v1/responses/{id}/cancel. It cancels the task as long as it works on the response or waits, and
// answers with the response.
func (d *Door) cancelResponse(w http.ResponseWriter, r *http.Request, params map[string]string, _ []byte) {
	ctx := call.Translated(r.Context())
	task, at, err := d.find(ctx, params["id"])
	if err != nil {
		fail(w, err)
		return
	}
	if asked(task, at) { // a later message has the task now
		d.show(ctx, w, task, at, formOf(task, at))
		return
	}
	_, err = d.tasks.CancelTask(ctx, &a2av1.CancelTaskRequest{Id: task.GetId()})
	if wire.InfoOf(wire.Status(err)).GetReason() == a2aerror.ReasonTaskNotCancelable { // it has ended
		err = nil
	}
	if err == nil {
		task, at, err = d.find(ctx, params["id"])
	}
	if err != nil {
		fail(w, err)
		return
	}
	d.show(ctx, w, task, at, formOf(task, at))
}
