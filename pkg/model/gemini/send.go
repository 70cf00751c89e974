package gemini

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

var errName = errors.New(`the name of a model must not have "?", "&" or ".."`)

// send makes the request.
func (m *Model) send(ctx context.Context, c *model.Call, req *agent.ModelRequest) error {
	name := m.config.Name
	if strings.ContainsAny(name, "?&") || strings.Contains(name, "..") { // it would be another path
		return errName
	}
	if !strings.HasPrefix(name, "models/") && !strings.HasPrefix(name, "tunedModels/") {
		name = "models/" + name
	}
	h := m.header()
	if deadline, ok := ctx.Deadline(); ok { // the provider ends its work then
		if left := time.Until(deadline).Seconds(); left > 0 {
			h.Set("X-Server-Timeout", strconv.FormatInt(int64(math.Ceil(left)), 10))
		}
	}
	path := &url.URL{Path: "/v1beta/" + name + ":streamGenerateContent"}
	return m.refused.Post(ctx, c, path.EscapedPath()+"?alt=sse", h,
		func(without map[string]bool) any { return model.WithExtra(m.request(req, without), m.config.Settings) },
		func(without map[string]bool, why *model.Rejection) string {
			if m.request(req, without).GenerationConfig.ResponseSchema == nil || !why.Blames("schema", "mime type", "mime_type", "mimetype") {
				return ""
			}
			return string(req.Schema)
		})
}

// header returns the headers of all requests.
func (m *Model) header() http.Header {
	h := http.Header{}
	if key := m.config.APIKey.Reveal(); key != "" {
		h.Set("X-Goog-Api-Key", key)
	}
	return h
}
