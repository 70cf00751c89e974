package a2aclient

import (
	"context"
	"iter"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
)

// jsonrpc03 is the JSON-RPC binding of 0.3. It ignores the tenants of requests: in 0.3 the
// address names the agent.
type jsonrpc03 struct{ *rpc }

func newJSONRPC03(w *web, url string) *jsonrpc03 {
	return &jsonrpc03{&rpc{web: w, url: url, failure: a2av03.ReadError}}
}

func (j *jsonrpc03) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	params, err := a2av03.RPC.WriteSend(req)
	result, err := j.call(ctx, "message/send", params, err)
	return read03(result, err, a2av03.RPC.ReadAnswer)
}

func (j *jsonrpc03) stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	params, err := a2av03.RPC.WriteSend(req)
	return j.follow(ctx, "message/stream", params, err, 0, parseRPC03)
}

func (j *jsonrpc03) task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	params, err := a2av03.WriteTaskQuery(req)
	result, err := j.call(ctx, "tasks/get", params, err)
	return read03(result, err, a2av03.RPC.ReadTask)
}

func (j *jsonrpc03) tasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	params, err := a2av03.WriteList(req)
	result, err := j.call(ctx, "tasks/list", params, err)
	return read03(result, err, a2av03.RPC.ReadTasks)
}

func (j *jsonrpc03) cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	params, err := a2av03.WriteTaskID(req.GetId(), req.GetMetadata())
	result, err := j.call(ctx, "tasks/cancel", params, err)
	return read03(result, err, a2av03.RPC.ReadTask)
}

func (j *jsonrpc03) subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error] {
	params, err := a2av03.WriteTaskID(req.GetId(), nil)
	return j.follow(ctx, "tasks/resubscribe", params, err, after, parseRPC03)
}

func (j *jsonrpc03) setPush(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	params, err := a2av03.RPC.WritePushRequest(req)
	result, err := j.call(ctx, "tasks/pushNotificationConfig/set", params, err)
	return read03(result, err, a2av03.RPC.ReadTaskPush)
}

func (j *jsonrpc03) push(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	params, err := a2av03.WritePushID(req.GetTaskId(), req.GetId())
	result, err := j.call(ctx, "tasks/pushNotificationConfig/get", params, err)
	return read03(result, err, a2av03.RPC.ReadTaskPush)
}

func (j *jsonrpc03) pushes(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	params, err := a2av03.WritePushID(req.GetTaskId(), "")
	result, err := j.call(ctx, "tasks/pushNotificationConfig/list", params, err)
	return read03(result, err, a2av03.RPC.ReadPushes)
}

func (j *jsonrpc03) deletePush(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) error {
	params, err := a2av03.WritePushID(req.GetTaskId(), req.GetId())
	_, err = j.call(ctx, "tasks/pushNotificationConfig/delete", params, err)
	return err
}

func (j *jsonrpc03) extendedCard(ctx context.Context, _ *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	result, err := j.call(ctx, "agent/getAuthenticatedExtendedCard", nil, nil)
	return read03(result, err, a2av03.ReadCard)
}

func parseRPC03(data []byte) (*a2av1.StreamResponse, error) {
	return read03(data, nil, a2av03.RPC.ReadEvent)
}
