package remote

import (
	"context"
	"iter"
	"net/http"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// restTransport is A2A over HTTP and JSON.
type restTransport struct {
	http  *http.Client
	base  string // with the tenant, without a slash at its end
	token string
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
	if err := wire.UnmarshalAnswer(b, out); err != nil {
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
	return exchangeREST(t.http, req, wire.ParseRESTError)
}

// exchangeREST makes a request; an answer that is none of a success is an error,
// which refused reads.
func exchangeREST(c *http.Client, req *http.Request, refused func(httpStatus int, body []byte) *status.Status) (*http.Response, error) {
	resp, err := exchangeHTTP(c, req)
	if err != nil || resp.StatusCode/100 == 2 {
		return resp, err
	}
	b, err := readAll(resp)
	if err != nil {
		return nil, err
	}
	return nil, refused(resp.StatusCode, b).Err()
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
	path := taskPath(req.GetId()) + ":subscribe"
	return eitherMethod(func(method string) iter.Seq2[*a2av1.StreamResponse, error] {
		if method == http.MethodGet {
			return t.events(ctx, method, path, nil)
		}
		return t.events(ctx, method, path, req)
	})
}

// eitherMethod opens a stream with GET, and with POST where that is not possible.
func eitherMethod(open func(method string) iter.Seq2[*a2av1.StreamResponse, error]) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		first := true
		for r, err := range open(http.MethodGet) {
			if first && codeOf(err) == codes.Unimplemented {
				break
			}
			if first = false; !yield(r, err) {
				return
			}
		}
		if first {
			open(http.MethodPost)(yield)
		}
	}
}

func (t *restTransport) events(ctx context.Context, method, path string, in proto.Message) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		resp, err := t.do(ctx, method, path, in, wire.TypeSSE)
		if err != nil {
			yield(nil, err)
			return
		}
		readREST(resp, wire.ParseRESTError, parseBare, yield)
	}
}

func (t *restTransport) task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	path := taskPath(req.GetId())
	if req.HistoryLength != nil {
		path += "?historyLength=" + strconv.Itoa(int(req.GetHistoryLength()))
	}
	out := &a2av1.Task{}
	return out, t.call(ctx, http.MethodGet, path, nil, out)
}

func (t *restTransport) cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	out := &a2av1.Task{}
	return out, t.call(ctx, http.MethodPost, taskPath(req.GetId())+":cancel", req, out)
}

func (t *restTransport) close() error {
	t.http.CloseIdleConnections()
	return nil
}
