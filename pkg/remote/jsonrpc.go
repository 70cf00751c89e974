package remote

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// rpcTransport is A2A over JSON-RPC.
type rpcTransport struct {
	http  *http.Client
	url   string
	token string
}

func (t *rpcTransport) call(ctx context.Context, method string, in, out proto.Message) error {
	resp, err := t.do(ctx, method, in, "") //nolint:bodyclose // readAll closes it
	if err != nil {
		return err
	}
	b, err := readAll(resp)
	if err != nil {
		return err
	}
	return parseRPC(resp.StatusCode, b, out)
}

func (t *rpcTransport) do(ctx context.Context, method string, in proto.Message, accept string) (*http.Response, error) {
	params, err := wire.Marshal(in)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	body, err := json.Marshal(rpcRequest{JSONRPC: "2.0", ID: 1, Method: method, Params: params})
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	req, err := newRequest(ctx, http.MethodPost, t.url, t.token, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", wire.TypeJSON)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	return exchangeHTTP(t.http, req)
}

type rpcRequest struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      int             `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

var errNoResponse = errors.New("the answer is not a JSON-RPC 2.0 response")

// parseRPC reads a response: its error as a status, or its result into out.
func parseRPC(httpStatus int, b []byte, out proto.Message) error {
	var r wire.RPCResponse
	switch err := json.Unmarshal(b, &r); {
	case err == nil && r.Error != nil:
		return wire.ParseRPCError(r.Error).Err()
	case httpStatus/100 != 2:
		return wire.ParseRESTError(httpStatus, nil).Err()
	case err != nil:
		return unreadable(errNoResponse)
	}
	if err := wire.UnmarshalAnswer(r.Result, out); err != nil {
		return unreadable(err)
	}
	return nil
}

func (t *rpcTransport) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	out := &a2av1.SendMessageResponse{}
	return out, t.call(ctx, "SendMessage", req, out)
}

func (t *rpcTransport) stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return t.events(ctx, "SendStreamingMessage", req)
}

func (t *rpcTransport) subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return t.events(ctx, "SubscribeToTask", req)
}

// events reads a stream. An error before its first event comes as plain JSON.
func (t *rpcTransport) events(ctx context.Context, method string, in proto.Message) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		resp, err := t.do(ctx, method, in, wire.TypeSSE+", "+wire.TypeJSON) //nolint:bodyclose // readStream or readAll closes it
		if err != nil {
			yield(nil, err)
			return
		}
		parse := func(b []byte) (*a2av1.StreamResponse, error) {
			r := &a2av1.StreamResponse{}
			return r, parseRPC(resp.StatusCode, b, r)
		}
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

func (t *rpcTransport) task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	out := &a2av1.Task{}
	return out, t.call(ctx, "GetTask", req, out)
}

func (t *rpcTransport) cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	out := &a2av1.Task{}
	return out, t.call(ctx, "CancelTask", req, out)
}

func (t *rpcTransport) close() error {
	t.http.CloseIdleConnections()
	return nil
}
