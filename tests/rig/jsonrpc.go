package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// JSONRPC is a Client for JSON-RPC at /rpc.
type JSONRPC struct{ target Target }

// NewJSONRPC returns a client.
func NewJSONRPC(target Target) *JSONRPC { return &JSONRPC{target: target} }

// Binding returns "jsonrpc".
func (c *JSONRPC) Binding() string { return "jsonrpc" }

func (c *JSONRPC) post(ctx context.Context, method string, req proto.Message, headers map[string]string) (*Answer, error) {
	params, err := wire.Marshal(req)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": "1", "method": method, "params": json.RawMessage(params)})
	if err != nil {
		return nil, err
	}
	h := map[string]string{"Content-Type": wire.TypeJSON}
	for k, v := range headers {
		h[k] = v
	}
	return c.target.Do(ctx, http.MethodPost, "/rpc", b, h)
}

func (c *JSONRPC) call(ctx context.Context, method string, req, resp proto.Message) error {
	r, err := c.post(ctx, method, req, nil)
	if err != nil {
		return err
	}
	return RPCAnswer(r, resp)
}

// RPCAnswer decodes a JSON-RPC response into m, or returns its *Error.
func RPCAnswer(r *Answer, m proto.Message) error {
	b, err := r.all()
	if err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	return rpcResult(b, m, r.Status)
}

func rpcResult(b []byte, m proto.Message, httpStatus int) error {
	var resp wire.RPCResponse
	if err := json.Unmarshal(b, &resp); err != nil {
		return fmt.Errorf("status %d with %q: %w", httpStatus, strings.TrimSpace(string(b)), err)
	}
	if resp.JSONRPC != "2.0" {
		return fmt.Errorf("not JSON-RPC 2.0: %s", b)
	}
	if resp.Error != nil {
		e := errorOf(wire.ParseRPCError(resp.Error), httpStatus)
		e.RPC = resp.Error.Code
		return e
	}
	return wire.Unmarshal(resp.Result, m)
}

// Send calls SendMessage.
func (c *JSONRPC) Send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	resp := &a2av1.SendMessageResponse{}
	return resp, c.call(ctx, "SendMessage", req, resp)
}

// Get calls GetTask.
func (c *JSONRPC) Get(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	resp := &a2av1.Task{}
	return resp, c.call(ctx, "GetTask", req, resp)
}

// List calls ListTasks.
func (c *JSONRPC) List(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	resp := &a2av1.ListTasksResponse{}
	return resp, c.call(ctx, "ListTasks", req, resp)
}

// Cancel calls CancelTask.
func (c *JSONRPC) Cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	resp := &a2av1.Task{}
	return resp, c.call(ctx, "CancelTask", req, resp)
}

// Card calls GetExtendedAgentCard.
func (c *JSONRPC) Card(ctx context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	resp := &a2av1.AgentCard{}
	return resp, c.call(ctx, "GetExtendedAgentCard", req, resp)
}

// Stream calls SendStreamingMessage.
func (c *JSONRPC) Stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return c.stream(ctx, "SendStreamingMessage", req, nil)
}

// Subscribe calls SubscribeToTask.
func (c *JSONRPC) Subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error] {
	headers := map[string]string{}
	if after != 0 {
		headers["Last-Event-ID"] = strconv.FormatInt(after, 10)
	}
	return c.stream(ctx, "SubscribeToTask", req, headers)
}

func (c *JSONRPC) stream(ctx context.Context, method string, req proto.Message, headers map[string]string) iter.Seq2[*a2av1.StreamResponse, error] {
	resp, err := c.post(ctx, method, req, headers)
	if err != nil {
		return failed(err)
	}
	read := func(e wire.Event) (*a2av1.StreamResponse, error) {
		u := &a2av1.StreamResponse{}
		return u, rpcResult(e.Data, u, http.StatusOK)
	}
	return resp.events(read, func(r *Answer) error { return RPCAnswer(r, &a2av1.StreamResponse{}) })
}
