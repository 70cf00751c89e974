package gemini

import (
	"context"

	"github.com/agentteams/team-server/pkg/model"
)

var _ model.Checker = (*Model)(nil)

// Check implements model.Checker.
func (m *Model) Check(ctx context.Context) error {
	return m.config.Check(ctx, model.List{Path: "/v1beta/models?pageSize=1000", Header: m.header()})
}
