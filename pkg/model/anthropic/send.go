package anthropic

import (
	"context"
	"net/http"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// caching is the word for cache_control, see model.Refusals. Gateways to other providers may refuse it.
const caching = "cache_control"

// apiVersion is the version of the API.
const apiVersion = "2023-06-01"

// send makes the request.
func (m *Model) send(ctx context.Context, c *model.Call, req *agent.ModelRequest) error {
	h := m.header()
	h.Set("Accept", "application/json") // what the provider's own libraries send, also for streams
	return m.refused.Post(ctx, c, "/v1/messages", h,
		func(without map[string]bool) any { return model.WithExtra(m.request(req, without), m.config.Settings) },
		func(without map[string]bool, why *model.Rejection) string {
			c := m.request(req, without).OutputConfig
			switch {
			case why.Blames("cache_control"):
				return caching
			case c != nil && c.Format != nil && why.Blames("output_config", "output_format", "schema", "structured output"):
				return string(req.Schema)
			}
			return ""
		})
}

// header returns the headers of all requests.
func (m *Model) header() http.Header {
	h := http.Header{"Anthropic-Version": {apiVersion}}
	if key := m.config.APIKey.Reveal(); key != "" {
		h.Set("X-Api-Key", key)
	}
	return h
}
