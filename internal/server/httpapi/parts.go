package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/reduce"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
)

// partRoutes returns the routes of parts that responses replace by their URL because they
// are large.
func (s *API) partRoutes() []route {
	return []route{
		{"GET", "/tasks/{id}/parts/{digest}", s.servePart},
		{"GET", "/{tenant}/tasks/{id}/parts/{digest}", s.servePart},
	}
}

// servePart serves the content of one part of a task, whole or in ranges, to callers
// that may read the task. The URL works without A2A-Version, because clients follow it
// as a plain link.
func (s *API) servePart(w http.ResponseWriter, r *http.Request, params map[string]string) {
	in := *call.InboundOf(r.Context())
	in.Version = []string{a2a.ProtocolVersion}
	req := &a2av1.GetTaskRequest{Tenant: params["tenant"], Id: params["id"]}
	var part *a2av1.Part
	_, err := s.chain.Unary(call.WithInbound(r.Context(), &in), "GetPart", req, func(ctx context.Context, _ any) (_ any, err error) {
		part, err = s.table.Handler.Part(ctx, req.GetTenant(), req.GetId(), func(p *a2av1.Part) bool { return reduce.PartDigest(p) == params["digest"] })
		return &emptypb.Empty{}, err
	})
	if err != nil {
		s.fail(w, r, wire.Status(err))
		return
	}
	media, body := reduce.PartContent(part)
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "private, no-store")
	h.Set("Vary", "Authorization")
	h.Set("ETag", `"`+params["digest"]+`"`)
	h.Set("X-Content-Type-Options", "nosniff") // an agent made the content; it must not run as a page of this server
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": part.GetFilename()})
	if part.GetFilename() == "" || disposition == "" {
		disposition = "attachment"
	}
	h.Set("Content-Disposition", disposition)
	serveContent(w, r, body, s.failWith)
}

// serveContent writes content, whole or in ranges. The caller sets the headers first,
// including ETag. A range in an unknown unit is ignored (RFC 9110, section 14.2).
func serveContent(w http.ResponseWriter, r *http.Request, content []byte, fail func(http.ResponseWriter, *http.Request, *status.Status, int)) {
	const unit = "bytes="
	switch ranges := r.Header.Get("Range"); {
	case len(ranges) >= len(unit) && strings.EqualFold(ranges[:len(unit)], unit):
		r.Header.Set("Range", unit+ranges[len(unit):]) // net/http accepts only the lower-case unit
	default:
		r.Header.Del("Range")
	}
	http.ServeContent(&rangeWriter{ResponseWriter: w, refuse: func() {
		w.Header().Del("Content-Disposition")
		fail(w, r, wire.Status(wire.Invalid("Range", fmt.Sprintf("is outside the content, which has %d bytes", len(content)))), http.StatusRequestedRangeNotSatisfiable)
	}}, r, "", time.Time{}, bytes.NewReader(content))
}

// rangeWriter replaces the text with which net/http rejects a range.
type rangeWriter struct {
	http.ResponseWriter
	refuse  func()
	refused bool
}

// WriteHeader passes the status on, unless it rejects a range; then it calls refuse.
func (w *rangeWriter) WriteHeader(code int) {
	if code != http.StatusRequestedRangeNotSatisfiable {
		w.ResponseWriter.WriteHeader(code)
		return
	}
	w.refused = true
	w.refuse()
}

// Write passes content on, unless the range was rejected.
func (w *rangeWriter) Write(b []byte) (int, error) {
	if w.refused {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}
