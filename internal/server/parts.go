package server

import (
	"bytes"
	"context"
	"mime"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
)

// partRoutes serves the parts of tasks that answers replace by their URL.
func (s *Server) partRoutes() []route {
	return []route{
		{"GET", "/tasks/{id}/parts/{digest}", s.servePart},
		{"GET", "/{tenant}/tasks/{id}/parts/{digest}", s.servePart},
	}
}

// servePart serves the content of one part of a task, whole or in ranges, to callers
// that may read the task. The URL works without A2A-Version, because clients follow it
// as a plain link.
func (s *Server) servePart(w http.ResponseWriter, r *http.Request, params map[string]string) {
	in := *inboundOf(r.Context())
	in.version = []string{a2a.ProtocolVersion}
	req := &a2av1.GetTaskRequest{Tenant: params["tenant"], Id: params["id"]}
	var part *a2av1.Part
	_, err := unary(withInbound(r.Context(), &in), s, "GetPart", false, req, func(ctx context.Context, req *a2av1.GetTaskRequest) (_ *emptypb.Empty, err error) {
		part, err = s.h.Part(ctx, req.GetTenant(), req.GetId(), func(p *a2av1.Part) bool { return wire.PartDigest(p) == params["digest"] })
		return &emptypb.Empty{}, err
	})
	if err != nil {
		s.fail(w, r, wire.Status(err))
		return
	}
	media, body := wire.PartContent(part)
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "private, no-store")
	h.Set("Vary", "Authorization")
	h.Set("ETag", `"`+params["digest"]+`"`)
	h.Set("X-Content-Type-Options", "nosniff") // content of an agent, never a page of this server
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": part.GetFilename()})
	if part.GetFilename() == "" || disposition == "" {
		disposition = "attachment"
	}
	h.Set("Content-Disposition", disposition)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}
