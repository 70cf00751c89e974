package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/wire"
)

// V03 is a Client for A2A 0.3. It converts requests and responses from and to 1.0.
type V03 struct {
	target Target
	form   a2av03.Form
}

// ClientsV03 returns a client for each binding of 0.3. They send A2A-Version only if the
// target has one.
func ClientsV03(_ testing.TB, target Target) []Client {
	if target.Version == "" {
		target.Version = "-"
	}
	return []Client{&V03{target, a2av03.RPC}, &V03{target, a2av03.REST}}
}

// Binding returns "jsonrpc/0.3" or "rest/0.3".
func (c *V03) Binding() string {
	if c.form == a2av03.REST {
		return "rest/0.3"
	}
	return "jsonrpc/0.3"
}

// post makes a call: of a method with parameters in JSON-RPC, of a path with a body in
// REST.
func (c *V03) post(ctx context.Context, tenant, method, verb, path string, body []byte, headers map[string]string) (*Answer, error) {
	h := map[string]string{"Content-Type": wire.TypeJSON, "Accept": wire.TypeJSON}
	for k, v := range headers {
		h[k] = v
	}
	if c.form == a2av03.REST {
		if verb == http.MethodGet {
			body = nil
		}
		return c.target.Do(ctx, verb, prefix(tenant)+"/v1"+path, body, h)
	}
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": "1", "method": method, "params": json.RawMessage(body)})
	if err != nil {
		return nil, err
	}
	return c.target.Do(ctx, http.MethodPost, prefix(tenant)+"/rpc", b, h)
}

// result returns the result in a response, or its error.
func (c *V03) result(r *Answer) ([]byte, error) {
	b, err := r.all()
	if err != nil {
		return nil, fmt.Errorf("reading an answer: %w", err)
	}
	return c.unpack(b, r.Status)
}

func (c *V03) unpack(b []byte, httpStatus int) ([]byte, error) {
	if c.form == a2av03.REST {
		if httpStatus/100 != 2 {
			return nil, c.restError(b, httpStatus)
		}
		return b, nil
	}
	var resp wire.RPCResponse
	if err := json.Unmarshal(b, &resp); err != nil {
		return nil, fmt.Errorf("status %d with %q: %w", httpStatus, strings.TrimSpace(string(b)), err)
	}
	if resp.Error != nil {
		return nil, errorOf(a2av03.ReadError(resp.Error), httpStatus)
	}
	return resp.Result, nil
}

// restError decodes an error as clients of 0.3 do.
func (c *V03) restError(b []byte, httpStatus int) error {
	e := &wire.RPCError{}
	if err := json.Unmarshal(b, e); err != nil || e.Code == 0 {
		return fmt.Errorf("status %d with %q, which is not an error of 0.3", httpStatus, b)
	}
	return errorOf(a2av03.ReadError(e), httpStatus)
}

// Send calls message/send.
func (c *V03) Send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	body, err := c.form.WriteSend(req)
	if err != nil {
		return nil, err
	}
	r, err := c.post(ctx, req.GetTenant(), "message/send", http.MethodPost, "/message:send", body, nil)
	if err != nil {
		return nil, err
	}
	b, err := c.result(r)
	if err != nil {
		return nil, err
	}
	event, err := c.form.ReadEvent(b)
	if m := event.GetMessage(); m != nil {
		return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Message{Message: m}}, err
	}
	return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Task{Task: event.GetTask()}}, err
}

func (c *V03) task(r *Answer, err error) (*a2av1.Task, error) {
	if err != nil {
		return nil, err
	}
	b, err := c.result(r)
	if err != nil {
		return nil, err
	}
	return c.form.ReadTask(b)
}

// Get calls tasks/get.
func (c *V03) Get(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	body, err := a2av03.WriteTaskQuery(req)
	if err != nil {
		return nil, err
	}
	path := "/tasks/" + url.PathEscape(req.GetId())
	if req.HistoryLength != nil {
		path += "?historyLength=" + strconv.Itoa(int(req.GetHistoryLength()))
	}
	return c.task(c.post(ctx, req.GetTenant(), "tasks/get", http.MethodGet, path, body, nil))
}

// Cancel calls tasks/cancel.
func (c *V03) Cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	body, err := a2av03.WriteTaskID(req.GetId(), req.GetMetadata())
	if err != nil {
		return nil, err
	}
	return c.task(c.post(ctx, req.GetTenant(), "tasks/cancel", http.MethodPost, "/tasks/"+url.PathEscape(req.GetId())+":cancel", body, nil))
}

// List always fails: 0.3 does not define it.
func (c *V03) List(context.Context, *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	return nil, fmt.Errorf("%s has no list", c.Binding())
}

// Card calls agent/getAuthenticatedExtendedCard.
func (c *V03) Card(ctx context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	r, err := c.post(ctx, req.GetTenant(), "agent/getAuthenticatedExtendedCard", http.MethodGet, "/card", []byte("{}"), nil)
	if err != nil {
		return nil, err
	}
	b, err := c.result(r)
	if err != nil {
		return nil, err
	}
	return a2av03.ReadCard(b)
}

// Stream calls message/stream.
func (c *V03) Stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	body, err := c.form.WriteSend(req)
	if err != nil {
		return failed(err)
	}
	return c.events(c.post(ctx, req.GetTenant(), "message/stream", http.MethodPost, "/message:stream", body, nil))
}

// Subscribe calls tasks/resubscribe.
func (c *V03) Subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error] {
	body, err := a2av03.WriteTaskID(req.GetId(), nil)
	if err != nil {
		return failed(err)
	}
	headers := map[string]string{}
	if after != 0 {
		headers["Last-Event-ID"] = strconv.FormatInt(after, 10)
	}
	path := "/tasks/" + url.PathEscape(req.GetId()) + ":subscribe"
	return c.events(c.post(ctx, req.GetTenant(), "tasks/resubscribe", http.MethodPost, path, body, headers))
}

func (c *V03) events(r *Answer, err error) iter.Seq2[*a2av1.StreamResponse, error] {
	if err != nil {
		return failed(err)
	}
	read := func(e wire.Event) (*a2av1.StreamResponse, error) {
		if c.form == a2av03.REST && e.Kind == "error" {
			return nil, c.restError(e.Data, http.StatusOK)
		}
		b, err := c.unpack(e.Data, http.StatusOK)
		if err != nil {
			return nil, err
		}
		return c.form.ReadEvent(b)
	}
	return r.events(read, func(r *Answer) error {
		_, err := c.result(r)
		return err
	})
}
