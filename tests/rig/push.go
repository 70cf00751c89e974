package rig

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/types/known/emptypb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// PushClient has the calls for push notification configurations. Every Client implements
// it.
type PushClient interface {
	Client
	CreatePush(context.Context, *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error)
	GetPush(context.Context, *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error)
	ListPushes(context.Context, *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error)
	DeletePush(context.Context, *a2av1.DeleteTaskPushNotificationConfigRequest) error
}

// CreatePush calls CreateTaskPushNotificationConfig.
func (c *GRPC) CreatePush(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	resp, err := c.client.CreateTaskPushNotificationConfig(c.Context(ctx), req)
	return resp, FromGRPC(err)
}

// GetPush calls GetTaskPushNotificationConfig.
func (c *GRPC) GetPush(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	resp, err := c.client.GetTaskPushNotificationConfig(c.Context(ctx), req)
	return resp, FromGRPC(err)
}

// ListPushes calls ListTaskPushNotificationConfigs.
func (c *GRPC) ListPushes(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	resp, err := c.client.ListTaskPushNotificationConfigs(c.Context(ctx), req)
	return resp, FromGRPC(err)
}

// DeletePush calls DeleteTaskPushNotificationConfig.
func (c *GRPC) DeletePush(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) error {
	_, err := c.client.DeleteTaskPushNotificationConfig(c.Context(ctx), req)
	return FromGRPC(err)
}

func pushPath(tenant, task, id string) string {
	path := prefix(tenant) + "/tasks/" + url.PathEscape(task) + "/pushNotificationConfigs"
	if id != "" {
		path += "/" + url.PathEscape(id)
	}
	return path
}

// CreatePush posts a configuration to its task.
func (c *REST) CreatePush(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	resp := &a2av1.TaskPushNotificationConfig{}
	return resp, c.call(ctx, http.MethodPost, pushPath(req.GetTenant(), req.GetTaskId(), ""), req, resp)
}

// GetPush gets a configuration.
func (c *REST) GetPush(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	resp := &a2av1.TaskPushNotificationConfig{}
	return resp, c.call(ctx, http.MethodGet, pushPath(req.GetTenant(), req.GetTaskId(), req.GetId()), nil, resp)
}

// ListPushes gets a page of configurations.
func (c *REST) ListPushes(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	q := url.Values{}
	if req.GetPageSize() != 0 {
		q.Set("pageSize", strconv.Itoa(int(req.GetPageSize())))
	}
	if req.GetPageToken() != "" {
		q.Set("pageToken", req.GetPageToken())
	}
	resp := &a2av1.ListTaskPushNotificationConfigsResponse{}
	return resp, c.call(ctx, http.MethodGet, pushPath(req.GetTenant(), req.GetTaskId(), "")+"?"+q.Encode(), nil, resp)
}

// DeletePush deletes a configuration.
func (c *REST) DeletePush(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) error {
	return c.call(ctx, http.MethodDelete, pushPath(req.GetTenant(), req.GetTaskId(), req.GetId()), nil, &emptypb.Empty{})
}

// CreatePush calls CreateTaskPushNotificationConfig.
func (c *JSONRPC) CreatePush(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	resp := &a2av1.TaskPushNotificationConfig{}
	return resp, c.call(ctx, "CreateTaskPushNotificationConfig", req, resp)
}

// GetPush calls GetTaskPushNotificationConfig.
func (c *JSONRPC) GetPush(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	resp := &a2av1.TaskPushNotificationConfig{}
	return resp, c.call(ctx, "GetTaskPushNotificationConfig", req, resp)
}

// ListPushes calls ListTaskPushNotificationConfigs.
func (c *JSONRPC) ListPushes(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	resp := &a2av1.ListTaskPushNotificationConfigsResponse{}
	return resp, c.call(ctx, "ListTaskPushNotificationConfigs", req, resp)
}

// DeletePush calls DeleteTaskPushNotificationConfig.
func (c *JSONRPC) DeletePush(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) error {
	return c.call(ctx, "DeleteTaskPushNotificationConfig", req, &emptypb.Empty{})
}
