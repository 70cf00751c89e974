package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/wire"
)

// This file serves A2A 0.3 over REST, below /v1 and /{tenant}/v1.

// routesV03 returns the routes of 0.3. They exist even if 0.3 is turned off; the error then
// says how to turn it on.
func (s *API) routesV03() []route {
	const push = "/tasks/{id}/pushNotificationConfigs"
	var routes []route
	for _, tenant := range []string{"", "/{tenant}"} {
		at := func(methods, path string, handle unaryREST) route {
			return route{methods, tenant + "/v1" + path, s.guardV03(s.answerV03(handle))}
		}
		routes = append(routes,
			route{"GET", tenant + oldCardPath, s.serveOldCard},
			route{"OPTIONS", tenant + oldCardPath, preflight},
			at("POST", "/message:send", sendV03),
			route{"POST", tenant + "/v1/message:stream", s.guardV03(s.streamV03("message/stream"))},
			at("GET", "/tasks", listV03),
			at("GET", "/tasks/{id=*}", getV03),
			at("POST", "/tasks/{id=*}:cancel", cancelV03),
			route{"GET", tenant + "/v1/tasks/{id=*}:cancel", s.wrongMethod},
			route{"GET POST", tenant + "/v1/tasks/{id=*}:subscribe", s.guardV03(s.streamV03("tasks/resubscribe"))},
			at("POST", push, setPushV03),
			at("GET", push, listPushV03),
			at("GET", push+"/{push}", getPushV03),
			at("DELETE", push+"/{push}", deletePushV03),
			at("GET", "/card", cardV03),
		)
	}
	return routes
}

// pathV1 matches the path of a call in 1.0, with the tenant.
var pathV1 = regexp.MustCompile(`^(/[^/]+)?(/message:(?:send|stream)|/tasks|/tasks/.*|/card)$`)

// urlV03 returns the URL with /v1 added if the call names 0.3 but uses the path of 1.0.
func urlV03(u *url.URL, in *call.Inbound) *url.URL {
	if !in.WantsV03() {
		return u
	}
	m := pathV1.FindStringSubmatch(u.Path)
	if m == nil || m[1] == "/v1" {
		return u
	}
	to := *u
	to.Path, to.RawPath = m[1]+"/v1"+m[2], ""
	return escapedURL(&to)
}

// guardV03 wraps the handler of a 0.3 path: it rejects calls if 0.3 is turned off, and
// calls that name another version.
func (s *API) guardV03(next func(http.ResponseWriter, *http.Request, map[string]string)) func(http.ResponseWriter, *http.Request, map[string]string) {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		in := call.InboundOf(r.Context())
		r.Header["Accept"] = []string{wire.TypeJSON} // the only media type of 0.3
		switch {
		case in.NoV03() && in.WantsV03():
			s.fail(w, r, wire.Status(v03DisabledError()))
		case in.NoV03():
			s.failWith(w, r, wire.NotServed("unknown path: %s", v03Disabled), http.StatusNotFound)
		case !in.WantsV03() && !in.Unversioned():
			s.failWith(w, r, wire.NotServed("paths below /v1 belong to A2A 0.3, but the call names another A2A-Version; "+
				"omit the header, or use A2A 1.0 without /v1"), http.StatusNotFound)
		default:
			setExtensionsV03(w, in)
			next(w, r.WithContext(asV03(r.Context())), params)
		}
	}
}

// unaryREST runs one call and returns its answer as JSON; nil means that the answer has no
// body.
type unaryREST func(s *API, r *http.Request, params map[string]string) ([]byte, error)

func (s *API) answerV03(do unaryREST) func(http.ResponseWriter, *http.Request, map[string]string) {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		b, err := do(s, r, params)
		if err != nil {
			s.fail(w, r, wire.Status(err))
			return
		}
		if b == nil {
			w.Header().Set("Cache-Control", private)
			call.LimitWrite(w)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		write(w, wire.TypeJSON, private, b)
	}
}

func (s *API) streamV03(method string) func(http.ResponseWriter, *http.Request, map[string]string) {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		body := bodyOf(r)
		if method == "tasks/resubscribe" { // the path names the task
			var err error
			if body, err = a2av03.WriteTaskID(params["id"], nil); err != nil {
				s.fail(w, r, wire.Status(err))
				return
			}
		}
		s.serveEventsV03(w, r, method, a2av03.REST, body, params, &eventStream{
			failure: func(st *status.Status) ([]byte, error) { return a2av03.RESTError(st, wire.HTTPStatus(st)) },
			kind:    "error",
			refuse:  func(st *status.Status) { s.fail(w, r, st) },
		})
	}
}

func sendV03(s *API, r *http.Request, params map[string]string) ([]byte, error) {
	return callV03(a2av03.REST.ReadSend, a2av1.A2AServiceClient.SendMessage, a2av03.REST.WriteAnswer)(s, r.Context(), bodyOf(r), params)
}

func getV03(s *API, r *http.Request, params map[string]string) ([]byte, error) {
	req := &a2av1.GetTaskRequest{Tenant: params["tenant"], Id: params["id"]}
	err := knownV03(r.URL.Query(), "historyLength")
	if err != nil {
		return nil, err
	}
	if req.HistoryLength, err = queryNumber(r.URL.Query(), "historyLength"); err != nil {
		return nil, err
	}
	return rendered(a2av03.REST.WriteTask)(s.tasks.GetTask(r.Context(), req))
}

// listV03 lists tasks; the filters are in the query.
func listV03(s *API, r *http.Request, params map[string]string) ([]byte, error) {
	q := r.URL.Query()
	req := &a2av1.ListTasksRequest{Tenant: params["tenant"], ContextId: queryText(q, "contextId"), PageToken: queryText(q, "pageToken")}
	err := knownV03(q, "contextId", "status", "pageSize", "pageToken", "historyLength", "includeArtifacts", "lastUpdatedAfter")
	if err != nil {
		return nil, err
	}
	if req.PageSize, err = queryNumber(q, "pageSize"); err != nil {
		return nil, err
	}
	if req.HistoryLength, err = queryNumber(q, "historyLength"); err != nil {
		return nil, err
	}
	if queryText(q, "includeArtifacts") == "true" {
		req.IncludeArtifacts = proto.Bool(true)
	}
	if word := q.Get("status"); word != "" {
		if req.Status, err = a2av03.REST.State(word); err != nil {
			return nil, err
		}
	}
	if at := queryText(q, "lastUpdatedAfter"); at != "" {
		if req.StatusTimestampAfter, err = a2av03.ReadTime("lastUpdatedAfter", at); err != nil {
			return nil, err
		}
	}
	return rendered(a2av03.REST.WriteTasks)(s.tasks.ListTasks(r.Context(), req))
}

func cancelV03(s *API, r *http.Request, params map[string]string) ([]byte, error) {
	req, err := a2av03.ReadCancel(bodyOf(r))
	if err != nil {
		return nil, err
	}
	req.Tenant, req.Id = params["tenant"], params["id"]
	return rendered(a2av03.REST.WriteTask)(s.tasks.CancelTask(r.Context(), req))
}

func setPushV03(s *API, r *http.Request, params map[string]string) ([]byte, error) {
	req, err := a2av03.REST.ReadPush(bodyOf(r))
	if err != nil {
		return nil, err
	}
	req.Tenant, req.TaskId = params["tenant"], params["id"]
	return rendered(a2av03.REST.WritePush)(s.tasks.CreateTaskPushNotificationConfig(r.Context(), req))
}

func listPushV03(s *API, r *http.Request, params map[string]string) ([]byte, error) {
	req := &a2av1.ListTaskPushNotificationConfigsRequest{Tenant: params["tenant"], TaskId: params["id"]}
	return rendered(a2av03.REST.WritePushes)(s.tasks.ListTaskPushNotificationConfigs(r.Context(), req))
}

func getPushV03(s *API, r *http.Request, params map[string]string) ([]byte, error) {
	req := &a2av1.GetTaskPushNotificationConfigRequest{Tenant: params["tenant"], TaskId: params["id"], Id: params["push"]}
	return rendered(a2av03.REST.WritePush)(s.tasks.GetTaskPushNotificationConfig(r.Context(), req))
}

func deletePushV03(s *API, r *http.Request, params map[string]string) ([]byte, error) {
	_, err := s.tasks.DeleteTaskPushNotificationConfig(r.Context(), &a2av1.DeleteTaskPushNotificationConfigRequest{
		Tenant: params["tenant"], TaskId: params["id"], Id: params["push"],
	})
	return nil, err
}

func cardV03(s *API, r *http.Request, params map[string]string) ([]byte, error) {
	req := &a2av1.GetExtendedAgentCardRequest{Tenant: params["tenant"]}
	return rendered(a2av03.WriteCard)(s.tasks.GetExtendedAgentCard(r.Context(), req))
}

// rendered returns a function that encodes the response of a call, or returns its error.
func rendered[T any](write func(T) ([]byte, error)) func(T, error) ([]byte, error) {
	return func(v T, err error) ([]byte, error) {
		if err != nil {
			return nil, err
		}
		return write(v)
	}
}

// knownV03 returns an INVALID_REQUEST error if a query has other parameters than the known ones, which
// are JSON names, and the tenant.
func knownV03(q url.Values, known ...string) error {
	return unknownParameters(q, known, func(name string) bool { return name == "tenant" || slices.Contains(known, camel(name)) })
}

// queryText returns a query parameter by its JSON name or its field name: pageSize or
// page_size.
func queryText(q url.Values, name string) string {
	for given := range q {
		if given == name || camel(given) == name {
			return q.Get(given)
		}
	}
	return ""
}

// queryNumber parses a number in the query. It returns nil if the parameter is absent or empty.
func queryNumber(q url.Values, name string) (*int32, error) {
	text := queryText(q, name)
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return nil, wire.Invalid(name, "must be a whole number")
	}
	return proto.Int32(int32(n)), nil
}

// setTenantOf is like setTenant, but does nothing if req is not a protobuf message.
func setTenantOf(req any, params map[string]string) error {
	if m, ok := req.(proto.Message); ok {
		return setTenant(m, params)
	}
	return nil
}

// oldCardPath is the path of the card before A2A 0.3. Some newer clients still use it.
const oldCardPath = "/.well-known/agent.json"

func (s *API) serveOldCard(w http.ResponseWriter, r *http.Request, params map[string]string) {
	if call.InboundOf(r.Context()).NoV03() {
		s.failWith(w, r, wire.NotServed("unknown path; the card is at %s", cardPath), http.StatusNotFound)
		return
	}
	s.serveCard(w, r, params)
}

// cardBytes encodes a card for a caller and returns the name of the variant, "1.0" or
// "union". Callers that name a version other than 0.3, or name none but accept the media
// type that 1.0 introduced, get the card of 1.0. If 0.3 is turned off, so do all callers.
// Others get a card that also describes 0.3; its signatures cover only the fields of 1.0.
func (s *API) cardBytes(ctx context.Context, card *a2av1.AgentCard) (b []byte, form string, err error) {
	in := call.InboundOf(ctx)
	if in.NoV03() || !in.WantsV03() && (!in.Unversioned() || strings.Contains(in.Accept, wire.TypeA2A)) {
		b, err = wire.Marshal(card)
		return b, "1.0", err
	}
	b, err = a2av03.WriteCard(card)
	return b, "union", err
}
