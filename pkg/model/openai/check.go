package openai

import (
	"context"
	"net/http"

	"github.com/agentteams/team-server/pkg/model"
)

var _ model.Checker = (*Model)(nil)

// Check implements model.Checker.
func (m *Model) Check(ctx context.Context) error {
	l := model.List{Path: "/models"}
	if key := m.config.APIKey.Reveal(); key != "" {
		l.Header = http.Header{"Authorization": {"Bearer " + key}}
	}
	return m.config.Check(ctx, l)
}
