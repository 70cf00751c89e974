package httpapi

import (
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/server/call"
)

// answer is a ResponseWriter that counts what is sent.
type answer struct {
	http.ResponseWriter
	record *call.Record
	code   int // the HTTP status; 0 until it is sent
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= http.StatusOK {
		a.code = code
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	n, err := a.ResponseWriter.Write(b)
	a.record.AddSent(n)
	return n, err
}

// Unwrap returns the ResponseWriter below, for an http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// recordHTTP returns a ResponseWriter that counts what is sent, and a function that logs and measures the request
// when it has been answered.
func (s *API) recordHTTP(w http.ResponseWriter, r *http.Request, in *call.Inbound) (http.ResponseWriter, func()) {
	if in.Record == nil {
		return w, func() {}
	}
	a := &answer{ResponseWriter: w, record: in.Record}
	return a, func() {
		in.Record.SetRefusal(status.New(codeOf(a.code), ""))
		s.chain.Finish(r.Context(), in)
	}
}

// codeOf returns the gRPC code for the HTTP status of a request that reached no call.
func codeOf(httpStatus int) codes.Code {
	switch {
	case httpStatus < http.StatusBadRequest:
		return codes.OK
	case httpStatus == http.StatusUnauthorized:
		return codes.Unauthenticated
	case httpStatus == http.StatusForbidden:
		return codes.PermissionDenied
	case httpStatus == http.StatusNotFound, httpStatus == http.StatusMethodNotAllowed:
		return codes.Unimplemented
	case httpStatus == http.StatusTooManyRequests, httpStatus == http.StatusRequestEntityTooLarge:
		return codes.ResourceExhausted
	case httpStatus == http.StatusServiceUnavailable:
		return codes.Unavailable
	case httpStatus < http.StatusInternalServerError:
		return codes.InvalidArgument
	}
	return codes.Internal
}
