package remote

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/wire"
)

// rest03Transport is A2A 0.3 over HTTP and JSON. It knows no tenant: that is part of the address.
type rest03Transport struct {
	http  *http.Client
	base  string // ends in /v1
	token string
}

// do makes a request; err is that of rendering its body, nil for none.
func (t *rest03Transport) do(ctx context.Context, method, path string, body []byte, err error, accept string) (*http.Response, error) {
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	req, err := newRequest(ctx, method, t.base+path, t.token, body)
	if err != nil {
		return nil, err
	}
	set03(req, accept)
	return exchangeREST(t.http, req, a2av03.ReadRESTError)
}

// set03 sets what every call of 0.3 carries.
func set03(req *http.Request, accept string) {
	req.Header.Set("A2A-Version", a2av03.Version)
	req.Header.Set("Content-Type", wire.TypeJSON)
	req.Header.Set("Accept", accept)
	if uris := extensionsOf(req.Context()); uris != "" {
		req.Header.Set("X-A2A-Extensions", uris)
	}
}

func (t *rest03Transport) call(ctx context.Context, method, path string, body []byte, err error) ([]byte, error) {
	resp, err := t.do(ctx, method, path, body, err, wire.TypeJSON) //nolint:bodyclose // readAll closes it
	if err != nil {
		return nil, err
	}
	return readAll(resp)
}

func (t *rest03Transport) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	body, err := a2av03.REST.WriteSend(req)
	b, err := t.call(ctx, http.MethodPost, "/message:send", body, err)
	if err != nil {
		return nil, err
	}
	return answer03(a2av03.REST.ReadAnswer(b))
}

// answer03 is the answer to a send, as it was read.
func answer03(r *a2av1.SendMessageResponse, err error) (*a2av1.SendMessageResponse, error) {
	if err != nil {
		return nil, unreadable(err)
	}
	return r, nil
}

func (t *rest03Transport) stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	body, err := a2av03.REST.WriteSend(req)
	return t.events(ctx, http.MethodPost, "/message:stream", body, err)
}

// subscribe follows the definition of 0.3 in protobuf; some servers want POST.
func (t *rest03Transport) subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	path := taskPath(req.GetId()) + ":subscribe"
	return eitherMethod(func(method string) iter.Seq2[*a2av1.StreamResponse, error] {
		return t.events(ctx, method, path, nil, nil)
	})
}

func (t *rest03Transport) events(ctx context.Context, method, path string, body []byte, err error) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		resp, err := t.do(ctx, method, path, body, err, wire.TypeSSE)
		if err != nil {
			yield(nil, err)
			return
		}
		readREST(resp, a2av03.ReadRESTError, func(b []byte) (*a2av1.StreamResponse, error) {
			r, err := a2av03.REST.ReadEvent(b)
			if err != nil {
				return nil, unreadable(err)
			}
			return r, nil
		}, yield)
	}
}

func (t *rest03Transport) task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	path := taskPath(req.GetId())
	if req.HistoryLength != nil {
		path += "?historyLength=" + strconv.Itoa(int(req.GetHistoryLength()))
	}
	return t.taskOf(ctx, http.MethodGet, path)
}

func (t *rest03Transport) cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	return t.taskOf(ctx, http.MethodPost, taskPath(req.GetId())+":cancel")
}

func (t *rest03Transport) taskOf(ctx context.Context, method, path string) (*a2av1.Task, error) {
	b, err := t.call(ctx, method, path, nil, nil)
	if err != nil {
		return nil, err
	}
	task, err := a2av03.REST.ReadTask(b)
	if err != nil {
		return nil, unreadable(err)
	}
	return task, nil
}

func (t *rest03Transport) close() error {
	t.http.CloseIdleConnections()
	return nil
}

func taskPath(id string) string { return "/tasks/" + url.PathEscape(id) }
