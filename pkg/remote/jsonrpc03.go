package remote

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/wire"
)

// rpc03Transport is A2A 0.3 over JSON-RPC. It knows no tenant: that is part
// of the address.
type rpc03Transport struct {
	http  *http.Client
	url   string
	token string
}

// do sends a call.
func (t *rpc03Transport) do(ctx context.Context, method string, params []byte, accept string) (*http.Response, error) {
	body, err := json.Marshal(rpcRequest{JSONRPC: "2.0", ID: 1, Method: method, Params: params})
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	req, err := newRequest(ctx, http.MethodPost, t.url, t.token, body)
	if err != nil {
		return nil, err
	}
	set03(req, accept)
	return exchangeHTTP(t.http, req)
}

// call makes a call with one answer, and returns its result; err is that of
// rendering its parameters.
func (t *rpc03Transport) call(ctx context.Context, method string, params []byte, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	resp, err := t.do(ctx, method, params, wire.TypeJSON) //nolint:bodyclose // readAll closes it
	if err != nil {
		return nil, err
	}
	b, err := readAll(resp)
	if err != nil {
		return nil, err
	}
	return parseRPC03(resp.StatusCode, b)
}

// parseRPC03 reads a response: its error as a status, or its result.
func parseRPC03(httpStatus int, b []byte) (json.RawMessage, error) {
	var r wire.RPCResponse
	switch err := json.Unmarshal(b, &r); {
	case err == nil && r.Error != nil:
		return nil, a2av03.ReadError(r.Error).Err()
	case httpStatus/100 != 2:
		return nil, wire.ParseRESTError(httpStatus, nil).Err()
	case err != nil:
		return nil, unreadable(errNoResponse)
	}
	return r.Result, nil
}

func parseEvent03(httpStatus int, b []byte) (*a2av1.StreamResponse, error) {
	result, err := parseRPC03(httpStatus, b)
	if err != nil {
		return nil, err
	}
	r, err := a2av03.RPC.ReadEvent(result)
	if err != nil {
		return nil, unreadable(err)
	}
	return r, nil
}

func (t *rpc03Transport) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	params, err := a2av03.RPC.WriteSend(req)
	result, err := t.call(ctx, "message/send", params, err)
	if err != nil {
		return nil, err
	}
	return answer03(a2av03.RPC.ReadAnswer(result))
}

func (t *rpc03Transport) stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	params, err := a2av03.RPC.WriteSend(req)
	return t.events(ctx, "message/stream", params, err)
}

func (t *rpc03Transport) subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	params, err := a2av03.WriteTaskID(req.GetId(), nil)
	return t.events(ctx, "tasks/resubscribe", params, err)
}

// events reads a stream. An error before its first event comes as plain JSON, or
// as its only event.
func (t *rpc03Transport) events(ctx context.Context, method string, params []byte, err error) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		if err != nil {
			yield(nil, status.Error(codes.Internal, err.Error()))
			return
		}
		resp, err := t.do(ctx, method, params, wire.TypeSSE+", "+wire.TypeJSON) //nolint:bodyclose // readStream or readAll closes it
		if err != nil {
			yield(nil, err)
			return
		}
		parse := func(b []byte) (*a2av1.StreamResponse, error) { return parseEvent03(resp.StatusCode, b) }
		if wire.IsEventStream(resp.Header) {
			readStream(resp.Body, func(e wire.Event) (*a2av1.StreamResponse, error) { return parse(e.Data) }, yield)
			return
		}
		b, err := readAll(resp)
		if err != nil {
			yield(nil, err)
			return
		}
		yield(parse(b))
	}
}

func (t *rpc03Transport) task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	params, err := a2av03.WriteTaskQuery(req)
	return t.taskOf(ctx, "tasks/get", params, err)
}

func (t *rpc03Transport) cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	params, err := a2av03.WriteTaskID(req.GetId(), req.GetMetadata())
	return t.taskOf(ctx, "tasks/cancel", params, err)
}

func (t *rpc03Transport) taskOf(ctx context.Context, method string, params []byte, err error) (*a2av1.Task, error) {
	result, err := t.call(ctx, method, params, err)
	if err != nil {
		return nil, err
	}
	task, err := a2av03.RPC.ReadTask(result)
	if err != nil {
		return nil, unreadable(err)
	}
	return task, nil
}

func (t *rpc03Transport) close() error {
	t.http.CloseIdleConnections()
	return nil
}
