package a2aclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// rpc is the common part of the JSON-RPC bindings of both versions.
type rpc struct {
	*web
	url     string
	next    atomic.Int64
	failure func(*wire.RPCError) *status.Status
}

// id returns the id of a new request.
func (r *rpc) id() json.RawMessage { return strconv.AppendInt(nil, r.next.Add(1), 10) }

// envelope returns a request and its body; err is the error of encoding the parameters.
func (r *rpc) envelope(ctx context.Context, id json.RawMessage, method string, params []byte, err error) (*http.Request, []byte, error) {
	if err != nil {
		return nil, nil, err
	}
	body, err := json.Marshal(struct {
		JSONRPC string `json:"jsonrpc"`
		wire.RPCRequest
	}{"2.0", wire.RPCRequest{ID: id, Method: method, Params: params}})
	if err != nil {
		return nil, nil, err
	}
	req, err := r.request(ctx, http.MethodPost, r.url, wire.TypeJSON, body)
	return req, body, err
}

// call makes a call with one answer, and returns its result; err is the error of encoding
// the parameters.
func (r *rpc) call(ctx context.Context, method string, params []byte, err error) (json.RawMessage, error) {
	id := r.id()
	req, body, err := r.envelope(ctx, id, method, params, err)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", wire.TypeJSON)
	code, data, err := r.answer(req, body, MaxAnswer)
	if err != nil {
		return nil, err
	}
	return r.result(id, code, data)
}

// result returns the result in the response to a request. An error needs no id: a server
// that could not read the request does not know it.
func (r *rpc) result(id json.RawMessage, code int, data []byte) (json.RawMessage, error) {
	env, err := wire.ParseRPCResponse(data)
	switch {
	case err == nil && env.Error != nil:
		return nil, r.refused(r.failure(env.Error), code)
	case code/100 != 2:
		if err := r.refused(wire.ParseRESTError(code, data), code); err != nil {
			return nil, err
		}
		return nil, badAnswer("the server answered %d %s", code, http.StatusText(code))
	case err != nil, env.JSONRPC != "2.0" && !r.cfg.Lenient:
		return nil, badAnswer("the answer is not a JSON-RPC 2.0 response")
	case !bytes.Equal(env.ID, id) && !r.cfg.Lenient:
		return nil, badAnswer("the response is for another request: its id is %.100s, not %s", cmp.Or(string(env.ID), "missing"), id)
	}
	return env.Result, nil
}

// follow makes a call and yields the responses in the events of its answer, read by parse.
// An error, or the only result, may also be a plain JSON answer.
func (r *rpc) follow(ctx context.Context, method string, params []byte, err error, after int64, parse func([]byte) (*a2av1.StreamResponse, error)) iter.Seq2[*a2av1.StreamResponse, error] {
	id := r.id()
	req, body, err := r.envelope(ctx, id, method, params, err)
	if err != nil {
		return failing(err)
	}
	req.Header.Set("Accept", wire.TypeSSE+", "+wire.TypeJSON)
	behind(req, after)
	return responses(r.events(req, body, r.plain), func(ev wire.Event) (*a2av1.StreamResponse, error) {
		result, err := r.result(id, http.StatusOK, ev.Data)
		if err != nil {
			return nil, inEvent(err)
		}
		return parse(result)
	})
}

// plain returns an answer that is not a stream of events as the only event of one.
func (r *rpc) plain(resp *http.Response, data []byte) (wire.Event, error) {
	switch env, err := wire.ParseRPCResponse(data); {
	case err == nil && env.Error != nil:
		return wire.Event{}, r.refused(r.failure(env.Error), resp.StatusCode)
	case resp.StatusCode/100 != 2:
		return wire.Event{}, r.refused(wire.ParseRESTError(resp.StatusCode, data), resp.StatusCode)
	case err != nil || len(env.Result) == 0:
		return wire.Event{}, noStream(resp)
	}
	return wire.Event{Data: data}, nil
}

// jsonrpc is the JSON-RPC binding of 1.0.
type jsonrpc struct{ *rpc }

func newJSONRPC(w *web, url string) *jsonrpc {
	return &jsonrpc{&rpc{web: w, url: url, failure: wire.ParseRPCError}}
}

// invoke makes a call with one answer, reads that into out and returns out.
func invoke[M proto.Message](ctx context.Context, j *jsonrpc, method string, in proto.Message, out M) (M, error) {
	params, err := wire.Marshal(in)
	result, err := j.call(ctx, method, params, err)
	if err != nil {
		return out, err
	}
	if len(result) == 0 {
		return out, badAnswer("the response contains neither a result nor an error")
	}
	return out, decode(result, out)
}

func (j *jsonrpc) stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	params, err := wire.Marshal(req)
	return j.follow(ctx, "SendStreamingMessage", params, err, 0, parseResponse)
}

func (j *jsonrpc) subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error] {
	params, err := wire.Marshal(req)
	return j.follow(ctx, "SubscribeToTask", params, err, after, parseResponse)
}

func (j *jsonrpc) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	return invoke(ctx, j, "SendMessage", req, &a2av1.SendMessageResponse{})
}

func (j *jsonrpc) task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	return invoke(ctx, j, "GetTask", req, &a2av1.Task{})
}

func (j *jsonrpc) tasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	return invoke(ctx, j, "ListTasks", req, &a2av1.ListTasksResponse{})
}

func (j *jsonrpc) cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	return invoke(ctx, j, "CancelTask", req, &a2av1.Task{})
}

func (j *jsonrpc) setPush(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	return invoke(ctx, j, "CreateTaskPushNotificationConfig", req, &a2av1.TaskPushNotificationConfig{})
}

func (j *jsonrpc) push(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	return invoke(ctx, j, "GetTaskPushNotificationConfig", req, &a2av1.TaskPushNotificationConfig{})
}

func (j *jsonrpc) pushes(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	return invoke(ctx, j, "ListTaskPushNotificationConfigs", req, &a2av1.ListTaskPushNotificationConfigsResponse{})
}

// deletePush expects nothing: servers answer with null, with an empty object, or
// leave the result out.
func (j *jsonrpc) deletePush(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) error {
	params, err := wire.Marshal(req)
	_, err = j.call(ctx, "DeleteTaskPushNotificationConfig", params, err)
	return err
}

func (j *jsonrpc) extendedCard(ctx context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	return invoke(ctx, j, "GetExtendedAgentCard", req, &a2av1.AgentCard{})
}
