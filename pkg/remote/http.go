package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// exchangeHTTP sends a request; without an answer the peer is UNAVAILABLE.
func exchangeHTTP(c *http.Client, req *http.Request) (*http.Response, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return resp, nil
}

func newRequest(ctx context.Context, method, url, token string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	setHeaders(req, token)
	if uri := extensionsOf(ctx); uri != "" {
		req.Header.Set("A2A-Extensions", uri)
	}
	return req, nil
}

func readAll(resp *http.Response) ([]byte, error) {
	defer func() { _ = resp.Body.Close() }()
	b, err := egress.ReadBody(resp.Body, maxBody)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return b, nil
}

// unreadable is the error of an answer that is not what it should be.
func unreadable(err error) error {
	e := agent.Errorf(agent.CodeInternal, reasonInvalidResponse, "the agent's answer cannot be read").Because(err)
	e.Fresh = true
	return e
}

func isEventStream(resp *http.Response) bool {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && kind == wire.TypeSSE
}

// readStream yields the responses of a stream of events, each read by parse.
func readStream(body io.ReadCloser, parse func([]byte) (*a2av1.StreamResponse, error), yield func(*a2av1.StreamResponse, error) bool) {
	defer func() { _ = body.Close() }()
	for e, err := range wire.ReadEvents(body) {
		if err != nil {
			yield(nil, status.Error(codes.Unavailable, err.Error()))
			return
		}
		r, err := parse(e.Data)
		if !yield(r, err) || err != nil {
			return
		}
	}
}

func parseBare(b []byte) (*a2av1.StreamResponse, error) {
	r := &a2av1.StreamResponse{}
	if err := wire.Unmarshal(b, r); err != nil {
		return nil, unreadable(err)
	}
	return r, nil
}

// restTransport is A2A over HTTP and JSON.
type restTransport struct {
	http  *http.Client
	base  string // with the tenant, without a slash at its end
	token string
}

func restBase(l *link) string {
	base := strings.TrimSuffix(l.url, "/")
	if l.tenant != "" {
		base += "/" + url.PathEscape(l.tenant)
	}
	return base
}

// call makes one request; in and its fields are the body, nil for none.
func (t *restTransport) call(ctx context.Context, method, path string, in, out proto.Message) error {
	resp, err := t.do(ctx, method, path, in, "") //nolint:bodyclose // readAll closes it
	if err != nil {
		return err
	}
	b, err := readAll(resp)
	if err != nil {
		return err
	}
	if err := wire.Unmarshal(b, out); err != nil {
		return unreadable(err)
	}
	return nil
}

func (t *restTransport) do(ctx context.Context, method, path string, in proto.Message, accept string) (*http.Response, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = wire.Marshal(in); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	req, err := newRequest(ctx, method, t.base+path, t.token, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", wire.TypeA2A)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := exchangeHTTP(t.http, req)
	if err != nil || resp.StatusCode/100 == 2 {
		return resp, err
	}
	b, err := readAll(resp)
	if err != nil {
		return nil, err
	}
	return nil, wire.ParseRESTError(resp.StatusCode, b).Err()
}

func (t *restTransport) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	out := &a2av1.SendMessageResponse{}
	return out, t.call(ctx, http.MethodPost, "/message:send", req, out)
}

func (t *restTransport) stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return t.events(ctx, http.MethodPost, "/message:stream", req)
}

// subscribe follows the protocol's definition; servers that follow its text
// instead want POST.
func (t *restTransport) subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	path := "/tasks/" + url.PathEscape(req.GetId()) + ":subscribe"
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		first := true
		for r, err := range t.events(ctx, http.MethodGet, path, nil) {
			if first && codeOf(err) == codes.Unimplemented {
				break
			}
			if first = false; !yield(r, err) {
				return
			}
		}
		if first {
			t.events(ctx, http.MethodPost, path, req)(yield)
		}
	}
}

func (t *restTransport) events(ctx context.Context, method, path string, in proto.Message) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		resp, err := t.do(ctx, method, path, in, wire.TypeSSE) //nolint:bodyclose // readStream closes it
		if err != nil {
			yield(nil, err)
			return
		}
		readStream(resp.Body, parseBare, yield)
	}
}

func (t *restTransport) task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	path := "/tasks/" + url.PathEscape(req.GetId())
	if req.HistoryLength != nil {
		path += "?historyLength=" + strconv.Itoa(int(req.GetHistoryLength()))
	}
	out := &a2av1.Task{}
	return out, t.call(ctx, http.MethodGet, path, nil, out)
}

func (t *restTransport) cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	out := &a2av1.Task{}
	return out, t.call(ctx, http.MethodPost, "/tasks/"+url.PathEscape(req.GetId())+":cancel", req, out)
}

func (t *restTransport) close() error {
	t.http.CloseIdleConnections()
	return nil
}

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

// parseRPC reads a response: its error as a status, or its result into out.
func parseRPC(httpStatus int, b []byte, out proto.Message) error {
	var r wire.RPCResponse
	switch err := json.Unmarshal(b, &r); {
	case err == nil && r.Error != nil:
		return wire.ParseRPCError(r.Error).Err()
	case httpStatus/100 != 2:
		return wire.ParseRESTError(httpStatus, nil).Err()
	case err != nil:
		return unreadable(err)
	}
	if err := wire.Unmarshal(r.Result, out); err != nil {
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
		resp, err := t.do(ctx, method, in, wire.TypeSSE+", "+wire.TypeJSON)
		if err != nil {
			yield(nil, err)
			return
		}
		parse := func(b []byte) (*a2av1.StreamResponse, error) {
			r := &a2av1.StreamResponse{}
			return r, parseRPC(resp.StatusCode, b, r)
		}
		if isEventStream(resp) {
			readStream(resp.Body, parse, yield)
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
