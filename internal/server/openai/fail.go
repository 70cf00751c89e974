package openai

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// failure is an error as clients of OpenAI's API read it.
type failure struct {
	Error fault `json:"error"`
}

type fault struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// statusOf returns the HTTP status of an error, and whether the same request may succeed later. Clients repeat requests by the
// status: no client repeats one that was answered with 400, whatever else it is.
func statusOf(code codes.Code) (httpStatus int, later bool) {
	switch code {
	case codes.Unauthenticated:
		return http.StatusUnauthorized, false
	case codes.NotFound:
		return http.StatusNotFound, false
	case codes.Unavailable:
		return http.StatusServiceUnavailable, true
	case codes.DeadlineExceeded: // a repeat waits for the same task
		return http.StatusGatewayTimeout, true
	case codes.Internal, codes.DataLoss, codes.Unknown:
		return http.StatusInternalServerError, false
	case codes.OK, codes.Canceled, codes.InvalidArgument, codes.AlreadyExists, codes.PermissionDenied, codes.ResourceExhausted,
		codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Unimplemented:
	}
	return http.StatusBadRequest, false
}

// faultOf returns an error as clients read it.
func faultOf(st *status.Status) fault {
	f := fault{Message: st.Message(), Type: "invalid_request_error", Code: wire.InfoOf(st).GetReason()}
	httpStatus, _ := statusOf(st.Code())
	switch {
	case httpStatus == http.StatusUnauthorized:
		f.Type = "authentication_error"
	case st.Code() == codes.PermissionDenied:
		f.Type = "permission_error"
	case httpStatus >= http.StatusInternalServerError:
		f.Type = "server_error"
	}
	switch f.Code {
	case agent.ReasonBudgetExceeded, agent.ReasonAccountLimit, agent.ReasonInsufficientResources:
		f.Type = "insufficient_quota"
	case agent.ReasonAgentNotFound, agent.ReasonTeamNotFound:
		f.Code, f.Param = "model_not_found", new("model")
	}
	for _, d := range st.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok && len(bad.GetFieldViolations()) > 0 && f.Param == nil {
			f.Param = new(bad.GetFieldViolations()[0].GetField())
		}
	}
	return f
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	st := wire.Status(err)
	httpStatus, _ := statusOf(st.Code())
	Refuse(w, st, httpStatus)
}

// Refuse answers with an error of a request that reached no call, or of one that failed before its answer began. Of the status
// only those remain that say more than that the request is refused.
func Refuse(w http.ResponseWriter, st *status.Status, httpStatus int) {
	own, later := statusOf(st.Code())
	switch httpStatus {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		own = httpStatus
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if !later {
		h.Set("X-Should-Retry", "false")
	} else if wait := wire.RetryAfter(st); wait > 0 {
		h.Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
	}
	if own == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="team-server"`)
	}
	call.LimitWrite(w)
	w.WriteHeader(own)
	_, _ = w.Write(failureJSON(st)) //nolint:gosec // JSON, with its media type; the caller may have disconnected
}

// failureJSON returns the JSON of an error.
func failureJSON(st *status.Status) []byte {
	b, _ := json.Marshal(failure{faultOf(st)}) // texts always encode
	return b
}
