package a2aclient

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// httpJSON is the common part of the HTTP+JSON bindings of both versions.
type httpJSON struct {
	*web
	base          string
	media, accept string
	judge         func(httpStatus int, body []byte) *status.Status // reads an answer that is an error
}

// call makes a call with one answer and returns that. A nil body means none; err is the
// error of encoding it.
func (h *httpJSON) call(ctx context.Context, method, path string, body []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	req, err := h.request(ctx, method, h.base+path, h.media, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", h.accept)
	code, data, err := h.answer(req, body, MaxAnswer)
	if err != nil {
		return nil, err
	}
	if code/100 != 2 {
		return nil, h.failed(code, data)
	}
	return data, nil
}

// failed returns the error for an answer whose status is not one of success.
func (h *httpJSON) failed(code int, data []byte) error {
	if err := h.refused(h.judge(code, data), code); err != nil {
		return err
	}
	return badAnswer("the server answered %d %s", code, http.StatusText(code))
}

// follow makes a call and yields the responses in the events of its answer, read by parse.
func (h *httpJSON) follow(req *http.Request, body []byte, parse func([]byte) (*a2av1.StreamResponse, error)) iter.Seq2[*a2av1.StreamResponse, error] {
	req.Header.Set("Accept", wire.TypeSSE)
	return responses(h.events(req, body, h.plain), func(ev wire.Event) (*a2av1.StreamResponse, error) {
		if ev.Failed() {
			return nil, inEvent(h.failed(http.StatusInternalServerError, ev.Data))
		}
		return parse(ev.Data)
	})
}

// plain returns the error for an answer that is not a stream of events.
func (h *httpJSON) plain(resp *http.Response, data []byte) (wire.Event, error) {
	if resp.StatusCode/100 != 2 {
		return wire.Event{}, h.failed(resp.StatusCode, data)
	}
	return wire.Event{}, noStream(resp)
}

// post sends a body and yields the responses; err is the error of encoding the body.
func (h *httpJSON) post(ctx context.Context, path string, body []byte, err error, parse func([]byte) (*a2av1.StreamResponse, error)) iter.Seq2[*a2av1.StreamResponse, error] {
	if err != nil {
		return failing(err)
	}
	req, err := h.request(ctx, http.MethodPost, h.base+path, h.media, body)
	if err != nil {
		return failing(err)
	}
	return h.follow(req, body, parse)
}

// attach subscribes to a task. The protocol's definition in protobuf makes that a GET, and
// its text a POST: attach tries both.
func (h *httpJSON) attach(ctx context.Context, path string, after int64, parse func([]byte) (*a2av1.StreamResponse, error)) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			var body []byte
			if method == http.MethodPost {
				body = []byte("{}")
			}
			req, err := h.request(ctx, method, h.base+path, h.media, body)
			if err != nil {
				yield(nil, err)
				return
			}
			behind(req, after)
			first := true
			for r, err := range h.follow(req, body, parse) {
				if first && method == http.MethodGet && codeOf(err) == codes.Unimplemented {
					break
				}
				if first = false; !yield(r, err) {
					return
				}
			}
			if !first {
				return
			}
		}
	}
}

// taskPath returns the path of a task, followed by more.
func taskPath(id string, more ...string) string {
	path := "/tasks/" + url.PathEscape(id)
	for _, m := range more {
		path += m
	}
	return path
}

const webhooks = "/pushNotificationConfigs"

func webhookPath(task, id string) string { return taskPath(task, webhooks, "/", url.PathEscape(id)) }

// webhooksPath is the path and query of a page of a task's webhooks.
func webhooksPath(req *a2av1.ListTaskPushNotificationConfigsRequest) string {
	q := query{}
	q.text("pageToken", req.GetPageToken())
	if req.GetPageSize() != 0 {
		q.text("pageSize", strconv.Itoa(int(req.GetPageSize())))
	}
	return q.on(taskPath(req.GetTaskId(), webhooks))
}

// query is the query of a URL. Its methods add a value that is set.
type query url.Values

func (q query) text(name, value string) {
	if value != "" {
		url.Values(q).Set(name, value)
	}
}

func (q query) number(name string, n *int32) {
	if n != nil {
		q.text(name, strconv.Itoa(int(*n)))
	}
}

// on returns a path with the query.
func (q query) on(path string) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + url.Values(q).Encode()
}

// page returns the query for a page of tasks; state and since are the value and the name
// that differ between the versions.
func page(req *a2av1.ListTasksRequest, state, since string) query {
	q := query{}
	q.text("contextId", req.GetContextId())
	q.text("status", state)
	q.number("pageSize", req.PageSize)
	q.text("pageToken", req.GetPageToken())
	q.number("historyLength", req.HistoryLength)
	if req.IncludeArtifacts != nil {
		q.text("includeArtifacts", strconv.FormatBool(req.GetIncludeArtifacts()))
	}
	if at := req.GetStatusTimestampAfter(); at != nil {
		q.text(since, at.AsTime().Format(time.RFC3339Nano))
	}
	return q
}

// rest is the HTTP+JSON binding of 1.0.
type rest struct{ *httpJSON }

func newREST(w *web, base string) *rest {
	return &rest{&httpJSON{web: w, base: base, media: wire.TypeA2A, accept: wire.TypeA2A + ", " + wire.TypeJSON, judge: wire.ParseRESTError}}
}

// path returns the path of an operation, which begins with the tenant.
func (r *rest) path(tenant, operation string) string { return wire.TenantPath(tenant) + operation }

// get makes a call without a body, reads its answer into out and returns out.
func get[M proto.Message](ctx context.Context, r *rest, path string, out M) (M, error) {
	data, err := r.call(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return out, err
	}
	return out, decode(data, out)
}

// post makes a call with a message as its body, reads its answer into out and returns out.
func post[M proto.Message](ctx context.Context, r *rest, path string, in proto.Message, out M) (M, error) {
	body, err := wire.Marshal(in)
	data, err := r.call(ctx, http.MethodPost, path, body, err)
	if err != nil {
		return out, err
	}
	return out, decode(data, out)
}

func (r *rest) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	return post(ctx, r, r.path(req.GetTenant(), "/message:send"), req, &a2av1.SendMessageResponse{})
}

func (r *rest) stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	body, err := wire.Marshal(req)
	return r.post(ctx, r.path(req.GetTenant(), "/message:stream"), body, err, parseResponse)
}

func (r *rest) task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	q := query{}
	q.number("historyLength", req.HistoryLength)
	return get(ctx, r, q.on(r.path(req.GetTenant(), taskPath(req.GetId()))), &a2av1.Task{})
}

func (r *rest) tasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	state := ""
	if req.GetStatus() != 0 {
		state = req.GetStatus().String()
	}
	path := page(req, state, "statusTimestampAfter").on(r.path(req.GetTenant(), "/tasks"))
	return get(ctx, r, path, &a2av1.ListTasksResponse{})
}

func (r *rest) cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	return post(ctx, r, r.path(req.GetTenant(), taskPath(req.GetId(), ":cancel")), req, &a2av1.Task{})
}

func (r *rest) subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error] {
	return r.attach(ctx, r.path(req.GetTenant(), taskPath(req.GetId(), ":subscribe")), after, parseResponse)
}

func (r *rest) setPush(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	return post(ctx, r, r.path(req.GetTenant(), taskPath(req.GetTaskId(), webhooks)), req, &a2av1.TaskPushNotificationConfig{})
}

func (r *rest) push(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	return get(ctx, r, r.path(req.GetTenant(), webhookPath(req.GetTaskId(), req.GetId())), &a2av1.TaskPushNotificationConfig{})
}

func (r *rest) pushes(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	return get(ctx, r, r.path(req.GetTenant(), webhooksPath(req)), &a2av1.ListTaskPushNotificationConfigsResponse{})
}

func (r *rest) deletePush(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) error {
	_, err := r.call(ctx, http.MethodDelete, r.path(req.GetTenant(), webhookPath(req.GetTaskId(), req.GetId())), nil, nil)
	return err
}

func (r *rest) extendedCard(ctx context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	return get(ctx, r, r.path(req.GetTenant(), "/extendedAgentCard"), &a2av1.AgentCard{})
}

func parseResponse(data []byte) (*a2av1.StreamResponse, error) {
	r := &a2av1.StreamResponse{}
	return r, decode(data, r)
}
