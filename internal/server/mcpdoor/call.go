package mcpdoor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// arguments are those of a tool.
type arguments struct {
	Message string           `json:"message"`
	Inputs  *structpb.Struct `json:"inputs,omitempty"` // values by name
	Files   []file           `json:"files,omitempty"`
	Context string           `json:"context,omitempty"`
	Task    string           `json:"task,omitempty"`
}

// sayNothing reports whether there is nothing to send.
func (a *arguments) sayNothing() bool { return a.Message == "" && len(a.Files) == 0 && a.Inputs == nil }

// file is a file in the arguments. One of Data, Text and URL is set.
type file struct {
	Name      string  `json:"name,omitempty"`
	MediaType string  `json:"media_type,omitempty"`
	Data      []byte  `json:"data,omitempty"`
	Text      *string `json:"text,omitempty"`
	URL       string  `json:"url,omitempty"`
}

// toolCall is a tools/call.
type toolCall struct {
	*Door
	*request
	tool     string
	args     arguments
	answers  map[string]elicitation // to the questions that the client was asked
	state    string                 // what the client was given with those questions
	task     string                 // id of the task, "" as long as it is unknown
	original *a2av1.SendMessageRequest
	leave    func() // ends the wait for the answer to the message; see repeats.enter
}

// lateCancel is how long after the end of its connection a call of version 2025-11-25 may still be cancelled: some clients
// close it first.
const lateCancel = 5 * time.Second

// call runs a tool. A client that goes away leaves the task running, unless its protocol says that this cancels it.
func (d *Door) call(ctx context.Context, q *request) {
	t := &toolCall{Door: d, request: q, leave: func() {}}
	if err := t.read(); err != nil {
		q.finish(nil, err)
		return
	}
	gone := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cancelled := make(chan struct{})
	if !q.modern && q.session != "" { // otherwise ids are not those of one client, and closing the stream cancels
		defer d.waiting.begin(q.callKey(q.ID), sync.OnceFunc(func() {
			close(cancelled)
			cancel()
		}))()
	}
	q.reply.lasts(func(error) { cancel() })
	result, done, err := t.run(ctx)
	t.leave()
	if t.isCancelled(gone, cancelled) {
		t.cancelTask(ctx)
		return
	}
	if err != nil {
		q.finish(t.refusal(err), nil)
		return
	}
	if q.finish(result, nil) && gone.Err() == nil && done != nil {
		done()
	}
}

// isCancelled reports whether the client has cancelled the call, by a notification or by going away.
func (t *toolCall) isCancelled(gone context.Context, cancelled <-chan struct{}) bool {
	if gone.Err() == nil || t.modern {
		select {
		case <-cancelled:
			return true
		default:
			return gone.Err() != nil
		}
	}
	select {
	case <-cancelled:
		return true
	case <-time.After(lateCancel):
	case <-t.Chain.Closing().Done():
	}
	return false
}

// read reads the parameters.
func (t *toolCall) read() error {
	var params struct {
		Name      string                 `json:"name"`
		Arguments json.RawMessage        `json:"arguments"`
		Answers   map[string]elicitation `json:"inputResponses"`
		State     string                 `json:"requestState"`
	}
	if err := json.Unmarshal(t.Params, &params); err != nil {
		return mismatch("params", err)
	}
	if params.Name == "" {
		return &rpcError{wire.RPCInvalidParams, "params.name must be the name of a tool; tools/list lists them"}
	}
	t.tool, t.answers, t.state = params.Name, params.Answers, params.State
	dec := json.NewDecoder(bytes.NewReader(cmpRaw(params.Arguments)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t.args); err != nil {
		wrong := mismatch("arguments", err)
		wrong.text += "; the arguments are message, inputs, files, context and task"
		return wrong
	}
	return nil
}

func cmpRaw(b json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return json.RawMessage("{}")
	}
	return b
}

// run sends the message and waits for what becomes of it. done must be called when the client has got the result.
func (t *toolCall) run(ctx context.Context) (result any, done func(), err error) {
	task, done, err := t.send(ctx)
	for err == nil {
		if !taskstate.Interrupted(task.GetStatus().GetState()) || !t.meta.Capabilities.elicits() {
			break
		}
		open := questionsOf(task)
		if len(open) == 0 {
			break
		}
		if t.modern {
			return inputRequired{ResultType: "input_required", InputRequests: inputRequests(open), RequestState: task.GetId()}, done, nil
		}
		var answered bool
		if task, answered, err = t.elicit(ctx, task, open[0]); !answered {
			break
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if t.wantsTask() && !taskstate.Final(task.GetStatus().GetState()) {
		t.repeats.given(task.GetId(), done)
		return flat(task, "task"), nil, nil
	}
	if !taskstate.Final(task.GetStatus().GetState()) && t.args.Task == "" {
		done = nil // a call with the same arguments finds the task
	}
	return resultOf(ctx, t.request, t.tool, task), done, nil
}

// send sends the message of the call, or the answers to the questions of its task, and returns the task when it has ended
// or waits for people.
func (t *toolCall) send(ctx context.Context) (task *a2av1.Task, done func(), err error) {
	switch {
	case t.state != "" && len(t.answers) > 0:
		t.task = t.state
		task, err = t.answer(ctx, t.state, t.answers)
		return task, nil, err
	case t.args.Task != "":
		t.task = t.args.Task
		if t.args.sayNothing() {
			task, err = t.wait(ctx, t.args.Task)
			return task, nil, err
		}
		key := t.key()
		n := t.repeats.next(key)
		task, err = t.post(ctx, t.message(t.repeats.id(key, n)))
		return task, func() { t.repeats.done(key, n+1) }, err
	case t.args.sayNothing():
		return nil, nil, wire.Invalid("message", "must say what the agent shall do")
	}
	return t.begin(ctx)
}

// begin begins a task, or finds that of an earlier call with the same arguments whose answer the client has not got, perhaps
// in a session before: a client whose connection broke begins another one.
func (t *toolCall) begin(ctx context.Context) (*a2av1.Task, func(), error) {
	key := t.key()
	for n := t.repeats.next(key); ; n++ {
		id := t.repeats.id(key, n)
		leave, ok := t.repeats.enter(ctx, id)
		if !ok {
			continue // another call that says the same waits for its own answer
		}
		t.leave()
		t.leave = leave
		task, err := t.post(ctx, t.message(id))
		if err != nil {
			return nil, nil, err
		}
		if task.GetId() != "" && t.repeats.over(task) {
			t.task = "" // that of the next message is not known yet
			continue
		}
		return task, func() { t.repeats.done(key, n+1) }, nil
	}
}

// key identifies the calls that mean the same task, in a few bytes, because it is remembered.
func (t *toolCall) key() string {
	args, _ := json.Marshal(t.args) // always encodes
	sum := sha256.Sum256([]byte(t.owner + "\x00" + t.tool + "\x00" + string(args)))
	return hex.EncodeToString(sum[:])
}

// message returns the request that sends the message of the call.
func (t *toolCall) message(id string) *a2av1.SendMessageRequest {
	m := &a2av1.Message{MessageId: id, ContextId: t.args.Context, TaskId: t.args.Task, Role: a2av1.Role_ROLE_USER}
	if t.args.Message != "" {
		m.Parts = agent.TextParts(t.args.Message)
	}
	if t.args.Inputs != nil {
		m.Parts = append(m.Parts, agent.DataPart(structpb.NewStructValue(t.args.Inputs)))
	}
	for _, f := range t.args.Files {
		m.Parts = append(m.Parts, f.part())
	}
	return &a2av1.SendMessageRequest{Tenant: t.tool, Message: m, Configuration: &a2av1.SendMessageConfiguration{HistoryLength: new(int32)}}
}

func (f file) part() *a2av1.Part {
	p := &a2av1.Part{Filename: f.Name, MediaType: f.MediaType}
	switch {
	case f.URL != "":
		p.Content = &a2av1.Part_Url{Url: f.URL}
	case f.Text != nil:
		p.Content, p.MediaType = &a2av1.Part_Raw{Raw: []byte(*f.Text)}, cmp.Or(f.MediaType, "text/plain")
	default:
		p.Content, p.MediaType = &a2av1.Part_Raw{Raw: f.Data}, cmp.Or(f.MediaType, "application/octet-stream")
	}
	return p
}

// wantsTask reports whether the client takes a task as the result of a call.
func (q *request) wantsTask() bool {
	_, declared := q.meta.Capabilities.Extensions[tasksExtension]
	return q.modern && declared
}

// post sends a message and returns its task when it has ended or waits for people; to a client that takes tasks it returns
// at once.
func (t *toolCall) post(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.Task, error) {
	t.original = req
	if t.wantsTask() {
		req.Configuration.ReturnImmediately = true
	} else if len(t.meta.ProgressToken) > 0 || t.forgets(ctx) {
		return t.follow(ctx, a2av1.A2AService_SendStreamingMessage_FullMethodName, req)
	}
	resp, err := invoke[*a2av1.SendMessageResponse](ctx, t.Door, a2av1.A2AService_SendMessage_FullMethodName, req)
	if err != nil {
		return nil, err
	}
	if m := resp.GetMessage(); m != nil {
		return direct(m), nil
	}
	t.task = resp.GetTask().GetId()
	return resp.GetTask(), nil
}

// forgets reports whether the server takes each message for a new one, so that repeating one does not find its task.
func (*toolCall) forgets(ctx context.Context) bool {
	return call.InboundOf(ctx).Settings.GetDeduplicate() == "off"
}

// direct returns a message that is an answer without a task as a task without an id.
func direct(m *a2av1.Message) *a2av1.Task {
	return &a2av1.Task{Status: &a2av1.TaskStatus{State: a2av1.TaskState_TASK_STATE_COMPLETED, Message: m}}
}

// wait returns a task when it has ended or waits for people.
func (t *toolCall) wait(ctx context.Context, id string) (*a2av1.Task, error) {
	task, err := t.get(ctx, id)
	if err != nil || t.wantsTask() || settled(task) {
		return task, err
	}
	return t.follow(ctx, a2av1.A2AService_SubscribeToTask_FullMethodName, &a2av1.SubscribeToTaskRequest{Tenant: t.tool, Id: id})
}

func settled(task *a2av1.Task) bool {
	state := task.GetStatus().GetState()
	return taskstate.Final(state) || taskstate.Interrupted(state)
}

// get returns a task as it is.
func (t *toolCall) get(ctx context.Context, id string) (*a2av1.Task, error) {
	return invoke[*a2av1.Task](ctx, t.Door, a2av1.A2AService_GetTask_FullMethodName, &a2av1.GetTaskRequest{Tenant: t.tool, Id: id, HistoryLength: new(int32)})
}

// cancelTask cancels the task of a call that its client has cancelled, or ended in a version in which this means the same.
// A server that stops cancels nothing.
func (t *toolCall) cancelTask(ctx context.Context) {
	if t.Chain.Closing().Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), call.QuickTime)
	defer cancel()
	if t.task == "" && t.original != nil && !t.forgets(ctx) { // the repeated message finds its task
		t.original.Configuration.ReturnImmediately = true
		resp, err := invoke[*a2av1.SendMessageResponse](ctx, t.Door, a2av1.A2AService_SendMessage_FullMethodName, t.original)
		if err != nil {
			return // there is no task, which is why the call ended
		}
		t.task = resp.GetTask().GetId()
	}
	if t.task != "" {
		_, _ = invoke[*a2av1.Task](ctx, t.Door, a2av1.A2AService_CancelTask_FullMethodName, &a2av1.CancelTaskRequest{Tenant: t.tool, Id: t.task}) // its outcome is in the log
	}
	t.reply.fail(t.ID, http.StatusOK, &wire.RPCError{Code: 0, Message: "the call was cancelled, and its task with it"})
}

// refusal returns the result that says why a call was refused or has failed. It is a result and no error of the protocol,
// because clients repeat the latter.
func (t *toolCall) refusal(err error) any {
	st := wire.Status(err)
	text := st.Message()
	if reason := wire.InfoOf(st).GetReason(); reason != "" {
		text = reason + ": " + text
	}
	if t.task != "" {
		text += fmt.Sprintf("\n\nThe task is %s.", t.task)
	}
	return callResult{ResultType: t.resultType(), Content: texts(text), IsError: true}
}

// answersTo returns the metadata that names the question of an answer.
func answersTo(question string) *structpb.Struct {
	of := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"question": structpb.NewStringValue(question)}})
	return &structpb.Struct{Fields: map[string]*structpb.Value{project.TeamRunURI: of}}
}
