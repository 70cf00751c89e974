package rig

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// REST is a Client for REST. The tenant is part of the path.
type REST struct {
	target Target
	// GetSubscribe makes Subscribe use GET instead of POST.
	GetSubscribe bool
}

// NewREST returns a client.
func NewREST(target Target) *REST { return &REST{target: target} }

// Binding returns "rest".
func (c *REST) Binding() string { return "rest" }

func (c *REST) post(ctx context.Context, path string, req proto.Message, headers map[string]string) (*Answer, error) {
	b, err := wire.Marshal(req)
	if err != nil {
		return nil, err
	}
	h := map[string]string{"Content-Type": wire.TypeA2A}
	for k, v := range headers {
		h[k] = v
	}
	return c.target.Do(ctx, http.MethodPost, path, b, h)
}

func (c *REST) call(ctx context.Context, method, path string, req, resp proto.Message) error {
	var r *Answer
	var err error
	if method == http.MethodPost {
		r, err = c.post(ctx, path, req, nil)
	} else {
		r, err = c.target.Do(ctx, method, path, nil, nil)
	}
	if err != nil {
		return err
	}
	return r.Read(resp)
}

// Send posts to message:send.
func (c *REST) Send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	resp := &a2av1.SendMessageResponse{}
	return resp, c.call(ctx, http.MethodPost, prefix(req.GetTenant())+"/message:send", req, resp)
}

// Get gets a task.
func (c *REST) Get(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	path := prefix(req.GetTenant()) + "/tasks/" + url.PathEscape(req.GetId())
	if req.HistoryLength != nil {
		path += "?historyLength=" + strconv.Itoa(int(req.GetHistoryLength()))
	}
	resp := &a2av1.Task{}
	return resp, c.call(ctx, http.MethodGet, path, nil, resp)
}

// List gets a page of tasks.
func (c *REST) List(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	q := url.Values{}
	set := func(name, value string, is bool) {
		if is {
			q.Set(name, value)
		}
	}
	set("contextId", req.GetContextId(), req.GetContextId() != "")
	set("status", req.GetStatus().String(), req.GetStatus() != 0)
	set("pageSize", strconv.Itoa(int(req.GetPageSize())), req.PageSize != nil)
	set("pageToken", req.GetPageToken(), req.GetPageToken() != "")
	set("historyLength", strconv.Itoa(int(req.GetHistoryLength())), req.HistoryLength != nil)
	set("includeArtifacts", strconv.FormatBool(req.GetIncludeArtifacts()), req.IncludeArtifacts != nil)
	if at := req.GetStatusTimestampAfter(); at != nil {
		q.Set("statusTimestampAfter", at.AsTime().Format(time.RFC3339Nano))
	}
	resp := &a2av1.ListTasksResponse{}
	return resp, c.call(ctx, http.MethodGet, prefix(req.GetTenant())+"/tasks?"+q.Encode(), nil, resp)
}

// Cancel posts to a task's cancel.
func (c *REST) Cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	resp := &a2av1.Task{}
	return resp, c.call(ctx, http.MethodPost, prefix(req.GetTenant())+"/tasks/"+url.PathEscape(req.GetId())+":cancel", req, resp)
}

// Card gets the extended card.
func (c *REST) Card(ctx context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	resp := &a2av1.AgentCard{}
	return resp, c.call(ctx, http.MethodGet, prefix(req.GetTenant())+"/extendedAgentCard", nil, resp)
}

// Stream posts to message:stream.
func (c *REST) Stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	resp, err := c.post(ctx, prefix(req.GetTenant())+"/message:stream", req, nil)
	if err != nil {
		return failed(err)
	}
	return resp.events(restEvent, func(a *Answer) error { return a.Read(&a2av1.StreamResponse{}) })
}

// Subscribe subscribes to a task with POST, or with GET.
func (c *REST) Subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error] {
	headers := map[string]string{}
	if after != 0 {
		headers["Last-Event-ID"] = strconv.FormatInt(after, 10)
	}
	path := prefix(req.GetTenant()) + "/tasks/" + url.PathEscape(req.GetId()) + ":subscribe"
	var resp *Answer
	var err error
	if c.GetSubscribe {
		resp, err = c.target.Do(ctx, http.MethodGet, path, nil, headers)
	} else {
		resp, err = c.post(ctx, path, req, headers)
	}
	if err != nil {
		return failed(err)
	}
	return resp.events(restEvent, func(a *Answer) error { return a.Read(&a2av1.StreamResponse{}) })
}

func restEvent(e wire.Event) (*a2av1.StreamResponse, error) {
	if e.Kind == "error" {
		return nil, errorOf(wire.ParseRESTError(0, e.Data), 0)
	}
	u := &a2av1.StreamResponse{}
	return u, wire.Unmarshal(e.Data, u)
}
