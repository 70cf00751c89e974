package openai

import (
	"context"

	"github.com/agentteams/team-server/pkg/model"
)

var _ model.Checker = (*Model)(nil)

// Check implements model.Checker.
func (m *Model) Check(ctx context.Context) error {
	return m.config.Check(ctx, model.List{Path: "/models", Header: m.header()})
}
