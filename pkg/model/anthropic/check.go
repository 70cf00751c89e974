package anthropic

import (
	"context"
	"net/http"

	"github.com/agentteams/team-server/pkg/model"
)

var _ model.Checker = (*Model)(nil)

// Check implements model.Checker.
func (m *Model) Check(ctx context.Context) error {
	l := model.List{Path: "/v1/models?limit=1000", Header: http.Header{"Anthropic-Version": {"2023-06-01"}}}
	if key := m.config.APIKey.Reveal(); key != "" {
		l.Header.Set("X-Api-Key", key)
	}
	return m.config.Check(ctx, l)
}
