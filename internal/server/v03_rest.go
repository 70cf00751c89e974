package server

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/wire"
)

// A2A 0.3 over REST, below /v1 and /{tenant}/v1.

// routesV03 are the routes of 0.3. They are there also where it is turned off, to
// say so.
func (s *Server) routesV03() []route {
	const push = "/tasks/{id}/pushNotificationConfigs"
	var routes []route
	for _, tenant := range []string{"", "/{tenant}"} {
		at := func(methods, path string, handle unaryREST) route {
			return route{methods, tenant + "/v1" + path, s.guardV03(s.answerV03(handle))}
		}
		routes = append(routes,
			route{"GET", tenant + oldCardPath, s.serveOldCard},
			route{"OPTIONS", tenant + oldCardPath, preflight},
			at("POST", "/message:send", (*Server).sendV03),
			route{"POST", tenant + "/v1/message:stream", s.guardV03(s.streamV03("message/stream"))},
			at("GET", "/tasks", (*Server).listV03),
			at("GET", "/tasks/{id=*}", (*Server).getV03),
			at("POST", "/tasks/{id=*}:cancel", (*Server).cancelV03),
			route{"GET", tenant + "/v1/tasks/{id=*}:cancel", s.wrongMethod},
			route{"GET POST", tenant + "/v1/tasks/{id=*}:subscribe", s.guardV03(s.streamV03("tasks/resubscribe"))},
			at("POST", push, (*Server).setPushV03),
			at("GET", push, (*Server).listPushV03),
			at("GET", push+"/{push}", (*Server).getPushV03),
			at("DELETE", push+"/{push}", (*Server).deletePushV03),
			at("GET", "/card", (*Server).cardV03),
		)
	}
	return routes
}

// pathOf1 is the path of a call in 1.0, with the tenant.
var pathOf1 = regexp.MustCompile(`^(/[^/]+)?(/message:(?:send|stream)|/tasks|/tasks/.*|/card)$`)

// placeV03 is the address to which a call of REST that names 0.3 belongs.
func placeV03(u *url.URL, in *inbound) *url.URL {
	if !in.wantsV03() {
		return u
	}
	m := pathOf1.FindStringSubmatch(u.Path)
	if m == nil || m[1] == "/v1" {
		return u
	}
	to := *u
	to.Path, to.RawPath = m[1]+"/v1"+m[2], ""
	return unescapedOnce(&to)
}

var pathOfV03 = regexp.MustCompile(`^(/[^/]+)?/v1/(message:|tasks|card)`)

// restV03 reports whether a path is one of 0.3.
func restV03(r *http.Request) bool { return pathOfV03.MatchString(r.URL.Path) }

// guardV03 answers calls that 0.3 cannot be had for.
func (s *Server) guardV03(next func(http.ResponseWriter, *http.Request, map[string]string)) func(http.ResponseWriter, *http.Request, map[string]string) {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		in := inboundOf(r.Context())
		r.Header["Accept"] = []string{wire.TypeJSON} // the only type of 0.3
		switch {
		case s.config.NoV03 && in.wantsV03():
			s.fail(w, r, wire.Status(s.offV03()))
		case s.config.NoV03:
			s.failWith(w, r, wire.NotServed("nothing is served here: %s", turnOn), http.StatusNotFound)
		case !in.wantsV03() && !in.unversioned():
			s.failWith(w, r, wire.NotServed("paths below /v1 are those of A2A 0.3, and the call says another A2A-Version; "+
				"leave that out, or call in 1.0 without /v1"), http.StatusNotFound)
		default:
			tellExtensions(w, in)
			next(w, r.WithContext(asV03(r.Context())), params)
		}
	}
}

// unaryREST answers one call: with JSON, or nothing.
type unaryREST func(s *Server, r *http.Request, params map[string]string) ([]byte, error)

func (s *Server) answerV03(do unaryREST) func(http.ResponseWriter, *http.Request, map[string]string) {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		b, err := do(s, r, params)
		if err != nil {
			s.fail(w, r, wire.Status(err))
			return
		}
		w.Header().Set("Cache-Control", "private, no-store")
		soon(w)
		if b == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", wire.TypeJSON)
		_, _ = w.Write(b) // the caller may have left
	}
}

func (s *Server) streamV03(method string) func(http.ResponseWriter, *http.Request, map[string]string) {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		body := bodyOf(r)
		if method == "tasks/resubscribe" { // the path says it all
			var err error
			if body, err = a2av03.WriteTaskID(params["id"], nil); err != nil {
				s.fail(w, r, wire.Status(err))
				return
			}
		}
		run, err := s.runV03(method, a2av03.REST, body, params)
		if err != nil {
			s.fail(w, r, wire.Status(err))
			return
		}
		s.serveEvents(w, r, framing{
			failure: func(st *status.Status) ([]byte, error) { return a2av03.RESTError(st, wire.HTTPStatus(st)) },
			kind:    "error",
			refuse:  func(st *status.Status) { s.fail(w, r, st) },
		}, run)
	}
}

func (s *Server) sendV03(r *http.Request, params map[string]string) ([]byte, error) {
	return callV03(a2av03.REST.ReadSend, (*Server).SendMessage, a2av03.REST.WriteAnswer)(s, r.Context(), bodyOf(r), params)
}

func (s *Server) getV03(r *http.Request, params map[string]string) ([]byte, error) {
	req := &a2av1.GetTaskRequest{Tenant: params["tenant"], Id: params["id"]}
	var err error
	if req.HistoryLength, err = queryNumber(r.URL.Query(), "historyLength"); err != nil {
		return nil, err
	}
	return rendered(a2av03.REST.WriteTask)(s.GetTask(r.Context(), req))
}

// listV03 takes its filters from the query.
func (s *Server) listV03(r *http.Request, params map[string]string) ([]byte, error) {
	q := r.URL.Query()
	req := &a2av1.ListTasksRequest{Tenant: params["tenant"], ContextId: queryText(q, "contextId"), PageToken: queryText(q, "pageToken")}
	var err error
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
	return rendered(a2av03.REST.WriteTasks)(s.ListTasks(r.Context(), req))
}

func (s *Server) cancelV03(r *http.Request, params map[string]string) ([]byte, error) {
	req, err := a2av03.ReadCancel(bodyOf(r))
	if err != nil {
		return nil, err
	}
	req.Tenant, req.Id = params["tenant"], params["id"]
	return rendered(a2av03.REST.WriteTask)(s.CancelTask(r.Context(), req))
}

func (s *Server) setPushV03(r *http.Request, params map[string]string) ([]byte, error) {
	req, err := a2av03.REST.ReadPush(bodyOf(r))
	if err != nil {
		return nil, err
	}
	req.Tenant, req.TaskId = params["tenant"], params["id"]
	return rendered(a2av03.REST.WritePush)(s.CreateTaskPushNotificationConfig(r.Context(), req))
}

func (s *Server) listPushV03(r *http.Request, params map[string]string) ([]byte, error) {
	req := &a2av1.ListTaskPushNotificationConfigsRequest{Tenant: params["tenant"], TaskId: params["id"]}
	return rendered(a2av03.REST.WritePushes)(s.ListTaskPushNotificationConfigs(r.Context(), req))
}

func (s *Server) getPushV03(r *http.Request, params map[string]string) ([]byte, error) {
	req := &a2av1.GetTaskPushNotificationConfigRequest{Tenant: params["tenant"], TaskId: params["id"], Id: params["push"]}
	return rendered(a2av03.REST.WritePush)(s.GetTaskPushNotificationConfig(r.Context(), req))
}

func (s *Server) deletePushV03(r *http.Request, params map[string]string) ([]byte, error) {
	_, err := s.DeleteTaskPushNotificationConfig(r.Context(), &a2av1.DeleteTaskPushNotificationConfigRequest{
		Tenant: params["tenant"], TaskId: params["id"], Id: params["push"],
	})
	return nil, err
}

func (s *Server) cardV03(r *http.Request, params map[string]string) ([]byte, error) {
	req := &a2av1.GetExtendedAgentCardRequest{Tenant: params["tenant"]}
	return rendered(a2av03.WriteCard)(s.GetExtendedAgentCard(r.Context(), req))
}

// rendered renders an answer that is none of an error.
func rendered[T any](write func(T) ([]byte, error)) func(T, error) ([]byte, error) {
	return func(v T, err error) ([]byte, error) {
		if err != nil {
			return nil, err
		}
		return write(v)
	}
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

// queryNumber reads a number of the query, nil without one.
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

// setTenantOf gives a request the tenant of its path.
func setTenantOf(req any, params map[string]string) error {
	if m, ok := req.(proto.Message); ok {
		return setTenant(m, params)
	}
	return nil
}

// oldCardPath is where clients before 0.3 look for a card, and some after.
const oldCardPath = "/.well-known/agent.json"

func (s *Server) serveOldCard(w http.ResponseWriter, r *http.Request, params map[string]string) {
	if s.config.NoV03 {
		s.failWith(w, r, wire.NotServed("nothing is served here; the card is at %s", cardPath), http.StatusNotFound)
		return
	}
	s.serveCard(w, r, params)
}

// cardBytes renders a card for a caller: who says 1.0, or accepts the media type that
// came with it, gets that card alone, others one that serves 0.3 too, which is not
// signed. form tells the two apart.
func (s *Server) cardBytes(ctx context.Context, card *a2av1.AgentCard) (b []byte, form string, err error) {
	in := inboundOf(ctx)
	if s.config.NoV03 || !in.wantsV03() && (!in.unversioned() || strings.Contains(in.accept, wire.TypeA2A)) {
		b, err = wire.Marshal(card)
		return b, "1.0", err
	}
	b, err = a2av03.WriteCard(card)
	return b, "union", err
}
