package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// ListCosts returns what tasks have spent in a period.
func (t *Team) ListCosts(ctx context.Context, req *teamv1.ListCostsRequest) (*teamv1.ListCostsResponse, error) {
	q := url.Values{"groupBy": {req.GetGroupBy().String()}}
	for name, value := range map[string]string{"team": req.GetTeam(), "account": req.GetAccount(), "model": req.GetModel()} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if req.GetSince() != nil {
		q.Set("since", req.GetSince().AsTime().Format(time.RFC3339Nano))
	}
	if req.GetUntil() != nil {
		q.Set("until", req.GetUntil().AsTime().Format(time.RFC3339Nano))
	}
	out := &teamv1.ListCostsResponse{}
	return out, t.call(ctx, http.MethodGet, "/monitor/costs?"+q.Encode(), nil, out)
}
