package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/reduce"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
)

// This file serves A2A 0.3 over JSON-RPC: the same calls as in 1.0, with other method names
// and another encoding.

// v03Disabled is the text of errors for calls in 0.3 when it is turned off.
const v03Disabled = "A2A 0.3 is disabled on this server; use A2A 1.0, or set server.protocol.v0_3 to true"

// unaryV03 runs one call of 0.3: it decodes the parameters, calls the method, and encodes
// the response.
type unaryV03 func(s *API, ctx context.Context, params []byte, tenant map[string]string) ([]byte, error)

// callV03 returns the unaryV03 of a method that decodes requests with read and encodes
// responses with write.
func callV03[Req, Resp any](read func([]byte) (Req, error), call func(a2av1.A2AServiceClient, context.Context, Req, ...grpc.CallOption) (Resp, error), write func(Resp) ([]byte, error)) unaryV03 {
	return func(s *API, ctx context.Context, params []byte, tenant map[string]string) ([]byte, error) {
		req, err := read(params)
		if err != nil {
			return nil, err
		}
		if err := setTenantOf(req, tenant); err != nil {
			return nil, err
		}
		resp, err := call(s.tasks, ctx, req)
		if err != nil {
			return nil, err
		}
		return write(resp)
	}
}

// unaryMethodsV03 returns the methods with one response by name. A2A 0.3 does not define
// tasks/list; the official Go SDK calls it.
func unaryMethodsV03() map[string]unaryV03 {
	const rpc = a2av03.RPC
	return map[string]unaryV03{
		"message/send":                        callV03(rpc.ReadSend, a2av1.A2AServiceClient.SendMessage, rpc.WriteAnswer),
		"tasks/get":                           callV03(a2av03.ReadTaskQuery, a2av1.A2AServiceClient.GetTask, rpc.WriteTask),
		"tasks/list":                          callV03(a2av03.ReadList, a2av1.A2AServiceClient.ListTasks, rpc.WriteTasks),
		"tasks/cancel":                        callV03(a2av03.ReadCancel, a2av1.A2AServiceClient.CancelTask, rpc.WriteTask),
		"tasks/pushNotificationConfig/set":    callV03(rpc.ReadPush, a2av1.A2AServiceClient.CreateTaskPushNotificationConfig, rpc.WritePush),
		"tasks/pushNotificationConfig/get":    callV03(readPushID, pushOf, rpc.WritePush),
		"tasks/pushNotificationConfig/list":   callV03(readListPushes, a2av1.A2AServiceClient.ListTaskPushNotificationConfigs, rpc.WritePushes),
		"tasks/pushNotificationConfig/delete": callV03(readDeletePush, a2av1.A2AServiceClient.DeleteTaskPushNotificationConfig, writeNull),
		"agent/getAuthenticatedExtendedCard":  callV03(readExtendedCard, a2av1.A2AServiceClient.GetExtendedAgentCard, a2av03.WriteCard),
	}
}

// methodV03 reports whether name is a method of 0.3.
func (s *API) methodV03(name string) bool {
	_, ok := s.v03[name]
	return ok || name == "message/stream" || name == "tasks/resubscribe"
}

// asV03 returns the context of a call in 0.3.
func asV03(ctx context.Context) context.Context {
	in := *call.InboundOf(ctx)
	in.V03, in.Binding = true, in.Binding+"/"+a2av03.Version
	return call.WithInbound(a2a.WithVersion(ctx, a2av03.Version), &in)
}

// refusedV03 returns the error if a method does not exist in the version that the call
// names, or 0.3 is turned off; otherwise nil.
func (s *API) refusedV03(in *call.Inbound, method string) *status.Status {
	known := s.methodV03(method)
	switch {
	case in.NoV03() && in.WantsV03():
		return wire.Status(v03DisabledError())
	case in.NoV03():
		return wire.NotServed("unknown method %.64q: %s", method, v03Disabled)
	case known && (in.WantsV03() || in.Unversioned()):
		return nil
	case known:
		return wire.NotServed("%q is a method of A2A 0.3, but the request has A2A-Version %.32s; omit the header, or send 0.3", method, strings.Join(in.Version, ", "))
	}
	return wire.NotServed("A2A 0.3 has no method %.64q; the request has A2A-Version 0.3", method)
}

func v03DisabledError() *a2aerror.Error {
	e := a2a.VersionNotSupported(a2av03.Version)
	e.Message = v03Disabled
	return e
}

// serveRPCV03 serves a JSON-RPC request in 0.3.
func (s *API) serveRPCV03(w http.ResponseWriter, r *http.Request, req wire.RPCRequest, params map[string]string) {
	in := call.InboundOf(r.Context())
	if st := s.refusedV03(in, req.Method); st != nil {
		s.failRPCV03(w, r, req, st)
		return
	}
	setExtensionsV03(w, in)
	ctx := asV03(r.Context())
	r = r.WithContext(ctx)
	method, ok := s.v03[req.Method]
	if !ok {
		s.streamRPCV03(w, r, req, params)
		return
	}
	b, err := method(s, ctx, req.Params, params)
	if err != nil {
		s.failRPCV03(w, r, req, wire.Status(err))
		return
	}
	write(w, wire.TypeJSON, private, wire.RPCResult(req.ID, b))
}

func (s *API) streamRPCV03(w http.ResponseWriter, r *http.Request, req wire.RPCRequest, params map[string]string) {
	before, after := wire.RPCEnvelope(req.ID)
	s.serveEventsV03(w, r, req.Method, a2av03.RPC, req.Params, params, &eventStream{
		before: before, after: after,
		failure: func(st *status.Status) ([]byte, error) { return wire.RPCFailure(req.ID, a2av03.Error(st)) },
		refuse:  func(st *status.Status) { s.failRPCV03(w, r, req, st) },
	})
}

// serveEventsV03 serves a streaming method of 0.3. The request and the messages of the stream are in the given form.
func (s *API) serveEventsV03(w http.ResponseWriter, r *http.Request, method string, form a2av03.Form, body []byte, params map[string]string, to *eventStream) {
	name, read := a2av1.A2AService_SendStreamingMessage_FullMethodName, func() (proto.Message, error) { return form.ReadSend(body) }
	if method == "tasks/resubscribe" {
		name, read = a2av1.A2AService_SubscribeToTask_FullMethodName, func() (proto.Message, error) { return a2av03.ReadResubscribe(body) }
	}
	to.receive = func(request any) error {
		req, err := read()
		if err != nil {
			return err
		}
		if err := setTenant(req, params); err != nil {
			return err
		}
		return service.Share(request, req)
	}
	to.encode = func(ctx context.Context, message any) ([]byte, error) { return encodeV03(ctx, message, form) }
	s.serveEvents(w, r, name, to)
}

// encodeV03 encodes an update for a caller in the given form. Readers cannot share an encoding here, because each event says
// whether it is the last of its stream.
func encodeV03(ctx context.Context, message any, form a2av03.Form) ([]byte, error) {
	u, ok := message.(feed.Update)
	if !ok {
		return nil, fmt.Errorf("rendering %T", message)
	}
	in := call.InboundOf(ctx)
	response, _ := reduce.Reduce(u.Response, in.BaseURL()).(*a2av1.StreamResponse)
	n, err := wire.Fits(response)
	if err == nil {
		err = in.Held.Updating(ctx, n)
	}
	if err != nil {
		return nil, err
	}
	return form.WriteEvent(response, u.Last)
}

// failRPCV03 answers with an error. Clients that accept only events get it as the only
// event of a stream, because they do not read errors elsewhere.
func (s *API) failRPCV03(w http.ResponseWriter, r *http.Request, req wire.RPCRequest, st *status.Status) {
	b := s.rpcFailure(r, req, st, a2av03.Error(st))
	if wire.RPCStatus(st) == http.StatusOK && onlyEvents(r) {
		events := wire.NewEventWriter(w, s.config.StallTime, func(error) {})
		defer events.Close()
		_ = events.Event(0, "", b) // the caller may have disconnected
		return
	}
	writeError(w, st, wire.RPCStatus(st), wire.TypeJSON, b)
}

// onlyEvents reports whether the caller accepts events and not JSON. A */* in Accept does
// not count, because Python's HTTP library always adds it.
func onlyEvents(r *http.Request) bool {
	in := call.InboundOf(r.Context())
	return strings.Contains(in.Accept, wire.TypeSSE) && !strings.Contains(in.Accept, "json")
}

// setExtensionsV03 sets the header with which 0.3 names the activated extensions.
func setExtensionsV03(w http.ResponseWriter, in *call.Inbound) {
	if uris := in.Activated(); uris != "" {
		w.Header().Set("X-A2A-Extensions", uris)
	}
}

func readPushID(b []byte) (*a2av1.GetTaskPushNotificationConfigRequest, error) {
	task, id, err := a2av03.ReadPushID(b)
	return &a2av1.GetTaskPushNotificationConfigRequest{TaskId: task, Id: id}, err
}

func readListPushes(b []byte) (*a2av1.ListTaskPushNotificationConfigsRequest, error) {
	task, _, err := a2av03.ReadPushID(b)
	return &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: task}, err
}

func readDeletePush(b []byte) (*a2av1.DeleteTaskPushNotificationConfigRequest, error) {
	task, id, err := a2av03.ReadPushID(b)
	return &a2av1.DeleteTaskPushNotificationConfigRequest{TaskId: task, Id: id}, err
}

func readExtendedCard([]byte) (*a2av1.GetExtendedAgentCardRequest, error) {
	return &a2av1.GetExtendedAgentCardRequest{}, nil
}

func writeNull[T any](T) ([]byte, error) { return []byte("null"), nil }

// pushOf returns a webhook by id, or the first webhook of the task if the request names no
// id.
func pushOf(tasks a2av1.A2AServiceClient, ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest, _ ...grpc.CallOption) (*a2av1.TaskPushNotificationConfig, error) { //nolint:revive // like the methods of the client
	if req.GetId() != "" {
		return tasks.GetTaskPushNotificationConfig(ctx, req)
	}
	list, err := tasks.ListTaskPushNotificationConfigs(ctx, &a2av1.ListTaskPushNotificationConfigsRequest{Tenant: req.GetTenant(), TaskId: req.GetTaskId()})
	if err != nil {
		return nil, err
	}
	if len(list.GetConfigs()) == 0 {
		return nil, wire.Status(a2aerror.TaskNotFound(req.GetTaskId())).Err()
	}
	return list.GetConfigs()[0], nil
}

// bodyOf returns the body of a request, which is in memory.
func bodyOf(r *http.Request) []byte {
	b, _ := readAll(r.Body)
	return b
}
