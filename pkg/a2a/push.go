package a2a

import (
	"context"
	"encoding/base64"
	"errors"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/a2aerror"
)

// Masked replaces secrets of push configurations in responses. If a client sends it in a
// configuration with an existing id, the stored secret is kept, provided that scheme, host and
// port of the URL are unchanged.
const Masked = "***"

// maxDead is the maximum number of abandoned notifications that are shown for a task.
const maxDead = 100

// CreateTaskPushNotificationConfig registers a webhook that is notified of changes to a task of
// the caller from now on; see A2A 1.0, section 3.1.7. If the task has ended, it is notified once
// of the final state. A configuration with an existing id replaces the previous one and continues
// where that one stopped. Errors: PUSH_NOTIFICATION_NOT_SUPPORTED, INVALID_REQUEST,
// TASK_NOT_FOUND, and INSUFFICIENT_RESOURCES if there are too many configurations.
func (h *Handler) CreateTaskPushNotificationConfig(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	if !h.hooks.on() {
		return nil, a2aerror.PushNotificationNotSupported()
	}
	var c checker
	c.needID("taskId", req.GetTaskId())
	c.push("", req, h.c.Settings.Load().CheckWebhook)
	if err := c.Err(); err != nil {
		return nil, err
	}
	k, err := keyOf(ctx, req.GetTenant(), req.GetTaskId())
	if err != nil {
		return nil, err
	}
	t, seen, err := h.tasks.task(ctx, req.GetTenant(), k)
	if err != nil {
		return nil, err
	}
	if over(t) {
		seen = runs.TaskFirst
	}
	conf := proto.CloneOf(req)
	if conf.GetId() == "" {
		conf.Id = newID()
	}
	p, err := h.hooks.of(ctx, k, seen, conf, "")
	if err != nil {
		return nil, err
	}
	if err := h.c.Pushes.PutPush(ctx, p); err != nil {
		return nil, runs.StoreError(k.ID, err)
	}
	return masked(conf), nil
}

// webhooks are the push configurations of tasks.
type webhooks struct {
	store    runs.Pushes // nil if push notifications are not supported
	settings *settings.Live
	tasks    tasks
}

// on reports whether push notifications are supported.
func (w webhooks) on() bool { return w.store != nil && w.settings.Load().GetPush().GetEnabled() }

// of returns a configuration of a task in the form that is stored. The receiver is notified of what follows the
// sequence number seen, see PushState. field is the place of the configuration in the request, for errors.
func (w webhooks) of(ctx context.Context, k runs.Key, seen int64, conf *a2av1.TaskPushNotificationConfig, field string) (runs.Push, error) {
	old, err := w.store.Push(ctx, k, conf.GetId())
	if err != nil && !errors.Is(err, runs.ErrNotFound) {
		return runs.Push{}, runs.StoreError(k.ID, err)
	}
	if err := unmask(conf, old.Config, field); err != nil {
		return runs.Push{}, err
	}
	conf.TaskId = k.ID
	return runs.Push{Task: k, Config: conf, Version: pushVersion(ctx), PushState: runs.PushState{Seen: seen}}, nil
}

// unmask replaces masked secrets in conf with those of old. If the URLs of the two configurations
// differ in scheme, host or port, it returns an error: otherwise a caller that does not know the
// secrets could have them sent to a server of its own. field is the place of conf in the request.
func unmask(conf, old *a2av1.TaskPushNotificationConfig, field string) error {
	var c checker
	same := runs.Origin(conf.GetUrl()) == runs.Origin(old.GetUrl())
	restore := func(at *string, was, name string) {
		switch {
		case *at != Masked:
		case was == "":
			c.Add(field+name, "is %s, the placeholder of a stored secret, but no secret is stored; send the secret, or omit the field", Masked)
		case !same:
			c.Add(field+name, "is %s, the placeholder of a secret stored for another scheme, host or port; send the secret, or omit the field", Masked)
		default:
			*at = was
		}
	}
	restore(&conf.Token, old.GetToken(), "token")
	if a := conf.GetAuthentication(); a != nil {
		restore(&a.Credentials, old.GetAuthentication().GetCredentials(), "authentication.credentials")
	}
	return c.Err()
}

// masked returns a copy of c with its secrets masked.
func masked(c *a2av1.TaskPushNotificationConfig) *a2av1.TaskPushNotificationConfig {
	c = proto.CloneOf(c)
	if c.GetToken() != "" {
		c.Token = Masked
	}
	if c.GetAuthentication().GetCredentials() != "" {
		c.Authentication.Credentials = Masked
	}
	return c
}

// task validates a call about the push configurations of a task of the caller, and returns
// the key of the task.
func (w webhooks) task(ctx context.Context, c *checker, tenant, task string) (runs.Key, error) {
	if !w.on() {
		return runs.Key{}, a2aerror.PushNotificationNotSupported()
	}
	c.needID("taskId", task)
	c.id("tenant", tenant)
	if err := c.Err(); err != nil {
		return runs.Key{}, err
	}
	k, err := keyOf(ctx, tenant, task)
	if err != nil {
		return runs.Key{}, err
	}
	_, err = w.tasks.standing(ctx, tenant, k)
	return k, err
}

// GetTaskPushNotificationConfig returns a push configuration with its secrets masked; see A2A
// 1.0, section 3.1.8. Errors: PUSH_NOTIFICATION_NOT_SUPPORTED, INVALID_REQUEST, and
// TASK_NOT_FOUND, also if the task has no such configuration.
func (h *Handler) GetTaskPushNotificationConfig(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	var c checker
	c.needID("id", req.GetId())
	k, err := h.hooks.task(ctx, &c, req.GetTenant(), req.GetTaskId())
	if err != nil {
		return nil, err
	}
	p, err := h.c.Pushes.Push(ctx, k, req.GetId())
	if errors.Is(err, runs.ErrNotFound) {
		return nil, pushNotFound(req.GetTaskId(), req.GetId())
	}
	if err != nil {
		return nil, runs.StoreError(k.ID, err)
	}
	return masked(p.Config), nil
}

// ListTaskPushNotificationConfigs returns a page of the push configurations of a task, ordered by
// id and with their secrets masked; see A2A 1.0, section 3.1.9. Errors:
// PUSH_NOTIFICATION_NOT_SUPPORTED, INVALID_REQUEST, TASK_NOT_FOUND.
func (h *Handler) ListTaskPushNotificationConfigs(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	var c checker
	size := c.PageSize("pageSize", req.GetPageSize())
	after, ok := openPushToken(req.GetPageToken())
	if !ok {
		c.Add("pageToken", "is not a page token of this list; omit it to start with the first page")
	}
	k, err := h.hooks.task(ctx, &c, req.GetTenant(), req.GetTaskId())
	if err != nil {
		return nil, err
	}
	list, err := h.c.Pushes.ListPushes(ctx, k, after, size+1)
	if err != nil {
		return nil, runs.StoreError(k.ID, err)
	}
	resp := &a2av1.ListTaskPushNotificationConfigsResponse{}
	if len(list) > size {
		list = list[:size]
		resp.NextPageToken = pushToken(list[size-1].Config.GetId())
	}
	for _, p := range list {
		resp.Configs = append(resp.Configs, masked(p.Config))
	}
	return resp, nil
}

// pushTokenMark is the prefix of decoded page tokens. A page token holds the id of the last
// configuration of the page. It needs no protection, because it is used only in the list of the
// caller's own task.
const pushTokenMark = "push:"

// pushToken returns the page token for the page that follows the configuration with this id.
func pushToken(id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(pushTokenMark + id))
}

// openPushToken returns the id in a page token, or "" for an empty token. ok is false if the
// token is invalid.
func openPushToken(token string) (after string, ok bool) {
	if token == "" {
		return "", true
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) <= len(pushTokenMark) || string(b[:len(pushTokenMark)]) != pushTokenMark {
		return "", false
	}
	after = string(b[len(pushTokenMark):])
	return after, idPattern.MatchString(after)
}

// DeleteTaskPushNotificationConfig deletes a push configuration; see A2A 1.0, section 3.1.10. It
// succeeds if the task has no such configuration. Errors: PUSH_NOTIFICATION_NOT_SUPPORTED,
// INVALID_REQUEST, TASK_NOT_FOUND.
func (h *Handler) DeleteTaskPushNotificationConfig(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) (*emptypb.Empty, error) {
	var c checker
	c.needID("id", req.GetId())
	k, err := h.hooks.task(ctx, &c, req.GetTenant(), req.GetTaskId())
	if err != nil {
		return nil, err
	}
	if err := h.c.Pushes.DeletePush(ctx, k, req.GetId()); err != nil {
		return nil, runs.StoreError(k.ID, err)
	}
	return &emptypb.Empty{}, nil
}

// show adds to the metadata of a task the delivery status of its push configurations.
func (w webhooks) show(ctx context.Context, k runs.Key, t *a2av1.Task) error {
	if !w.on() {
		return nil
	}
	list, err := w.store.ListPushes(ctx, k, "", runs.MaxPushTask)
	if err != nil || len(list) == 0 {
		return err
	}
	dead, _, err := w.store.DeadPushes(ctx, k, maxDead)
	if err != nil {
		return err
	}
	run := RunOf(t.GetMetadata())
	if run == nil {
		run = &teamv1.TeamRun{}
	}
	for _, p := range list {
		run.Push = append(run.Push, pushStatus(p, dead))
	}
	t.Metadata = project.Metadata(run)
	return nil
}

// pushStatus returns the delivery status of a push configuration. dead holds the abandoned
// notifications of the task.
func pushStatus(p runs.Push, dead []runs.DeadPush) *teamv1.PushStatus {
	s := &teamv1.PushStatus{
		Id: p.Config.GetId(), Seq: max(p.Seen, 0), Tries: int32(min(p.Tries, 1<<20)), Error: p.Error, Failing: p.Failing, Ended: p.Ended, //nolint:gosec // bounded
	}
	for _, d := range dead {
		if d.Config == s.GetId() {
			s.GivenUp = append(s.GivenUp, &teamv1.PushFailure{
				Notification: feed.NoticeID(p.Task.ID, d.Seq, d.Part), Seq: d.Seq, Tries: int32(min(d.Tries, 1<<20)), Error: d.Error, Time: timestamppb.New(d.At), //nolint:gosec // bounded
			})
		}
	}
	return s
}

// Outbox returns the notifications that a push configuration has not received yet. The caller
// must close the Outbox. Outbox returns TASK_NOT_FOUND if the run is not visible as a task.
func (h *Handler) Outbox(ctx context.Context, p runs.Push) (*feed.Outbox, error) {
	o, err := h.feeds.Outbox(ctx, feedKey(ctx, p.Task), p.Seen, p.Part)
	if errors.Is(err, feed.ErrNotVisible) {
		return nil, a2aerror.TaskNotFound(p.Task.ID)
	}
	return o, err
}
