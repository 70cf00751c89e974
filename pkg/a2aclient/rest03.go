package a2aclient

import (
	"context"
	"iter"
	"net/http"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/wire"
)

// rest03 is the HTTP+JSON binding of 0.3. It ignores the tenants of requests: in 0.3 the
// address names the agent.
type rest03 struct{ *httpJSON }

func newREST03(w *web, base string) *rest03 {
	return &rest03{&httpJSON{web: w, base: a2av03.RESTBase(base), media: wire.TypeJSON, accept: wire.TypeJSON, judge: a2av03.ReadRESTError}}
}

// read03 reads the answer of a call in 0.3, or one in which the forms of several versions are mixed;
// err is the error of the call.
func read03[T any](data []byte, err error, read func([]byte) (T, error)) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	v, err := read(data)
	if err == nil {
		return v, nil
	}
	if m, ok := any(none).(proto.Message); ok {
		if m, mixed := mixture(data, m); mixed == nil {
			return m.(T), nil //nolint:forcetypeassert // of the type of none
		}
	}
	return none, unreadable(err)
}

func (r *rest03) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	body, err := a2av03.REST.WriteSend(req)
	data, err := r.call(ctx, http.MethodPost, "/message:send", body, err)
	return read03(data, err, a2av03.REST.ReadAnswer)
}

func (r *rest03) stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	body, err := a2av03.REST.WriteSend(req)
	return r.post(ctx, "/message:stream", body, err, parseREST03)
}

func (r *rest03) task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	q := query{}
	q.number("historyLength", req.HistoryLength)
	data, err := r.call(ctx, http.MethodGet, q.on(taskPath(req.GetId())), nil, nil)
	return read03(data, err, a2av03.REST.ReadTask)
}

func (r *rest03) tasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	state := ""
	if req.GetStatus() != 0 {
		state = a2av03.REST.Word(req.GetStatus())
	}
	data, err := r.call(ctx, http.MethodGet, page(req, state, "lastUpdatedAfter").on("/tasks"), nil, nil)
	return read03(data, err, a2av03.REST.ReadTasks)
}

func (r *rest03) cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	body, err := a2av03.WriteTaskID("", req.GetMetadata()) // the path has the id
	data, err := r.call(ctx, http.MethodPost, taskPath(req.GetId(), ":cancel"), body, err)
	return read03(data, err, a2av03.REST.ReadTask)
}

func (r *rest03) subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error] {
	return r.attach(ctx, taskPath(req.GetId(), ":subscribe"), after, parseREST03)
}

func (r *rest03) setPush(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	body, err := a2av03.REST.WritePushRequest(req)
	data, err := r.call(ctx, http.MethodPost, taskPath(req.GetTaskId(), webhooks), body, err)
	return read03(data, err, a2av03.REST.ReadTaskPush)
}

func (r *rest03) push(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	data, err := r.call(ctx, http.MethodGet, webhookPath(req.GetTaskId(), req.GetId()), nil, nil)
	return read03(data, err, a2av03.REST.ReadTaskPush)
}

func (r *rest03) pushes(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	data, err := r.call(ctx, http.MethodGet, webhooksPath(req), nil, nil)
	return read03(data, err, a2av03.REST.ReadPushes)
}

func (r *rest03) deletePush(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) error {
	_, err := r.call(ctx, http.MethodDelete, webhookPath(req.GetTaskId(), req.GetId()), nil, nil)
	return err
}

func (r *rest03) extendedCard(ctx context.Context, _ *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	data, err := r.call(ctx, http.MethodGet, "/card", nil, nil)
	return read03(data, err, a2av03.ReadCard)
}

func parseREST03(data []byte) (*a2av1.StreamResponse, error) {
	return read03(data, nil, a2av03.REST.ReadEvent)
}
