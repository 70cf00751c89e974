package gemini

import (
	"context"

	"github.com/agentteams/team-server/pkg/model"
)

var _ model.Checker = (*Model)(nil)

// Check implements model.Checker.
func (m *Model) Check(ctx context.Context) error {
	return m.config.Check(ctx, model.List{Path: "/v1beta/models?pageSize=1000", Header: m.header(), KeyRefused: keyRefused})
}

// keyRefused reports whether the body of an error says that the key is not valid.
func keyRefused(body []byte) bool { return endpointError(&model.Rejection{Body: body}).KeyRefused }
