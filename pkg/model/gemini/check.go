package gemini

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/agentteams/team-server/pkg/model"
)

var _ model.Checker = (*Model)(nil)

// Check implements model.Checker.
func (m *Model) Check(ctx context.Context) error {
	l := model.List{Path: "/v1beta/models?pageSize=1000", Header: http.Header{}, KeyRefused: keyRefused}
	if key := m.config.APIKey.Reveal(); key != "" {
		l.Header.Set("X-Goog-Api-Key", key)
	}
	return m.config.Check(ctx, l)
}

// keyRefused reports whether the body of an error says that the key is not valid.
func keyRefused(body []byte) bool {
	var failed struct {
		Error struct {
			Details []struct {
				Reason string `json:"reason"`
			} `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &failed) != nil {
		return false
	}
	for _, d := range failed.Error.Details {
		if d.Reason == "API_KEY_INVALID" {
			return true
		}
	}
	return false
}
