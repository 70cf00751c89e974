package monitor

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// Defaults and limits of ListCosts.
const (
	defaultPeriod = 30 * 24 * time.Hour
	maxShares     = 1000
	maxName       = 1024 // bytes of a filter
)

// ListCosts returns what tasks have spent in a period. A caller that may not manage teams sees its own
// account. The errors include INVALID_REQUEST and PERMISSION_DENIED.
func (m *Monitor) ListCosts(ctx context.Context, req *teamv1.ListCostsRequest) (*teamv1.ListCostsResponse, error) {
	who, err := identity.Authenticated(ctx)
	switch {
	case err != nil:
		return nil, err
	case m.c.Costs == nil:
		return nil, a2aerror.UnsupportedOperation("the store of this server does not add up costs")
	}
	q, since, until, err := m.costQuery(req)
	if err != nil {
		return nil, err
	}
	switch name := req.GetAccount(); {
	case name == "-", name == who.Account, name == "" && !who.May(identity.PermissionAdmin):
		q.Account = &who.Account
	case name != "":
		if !who.May(identity.PermissionAdmin) {
			return nil, agent.Errorf(agent.CodePermissionDenied, agent.ReasonPermissionDenied,
				"account is %q, and this API key sees only the costs of its own account, %q; omit account, or use a caller with the permission ADMIN", name, who.Account)
		}
		q.Account = &name
	}
	sums, err := m.c.Costs.Costs(ctx, q)
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	if team := req.GetTeam(); team != "" {
		sums = slices.DeleteFunc(sums, func(s cost.Sum) bool { return !slices.Contains(strings.Split(s.Team, "/"), team) })
	}
	resp := shareCosts(sums, req.GetGroupBy())
	resp.Since, resp.Until = timestamppb.New(since), timestamppb.New(until)
	return resp, nil
}

// costQuery returns the query for a request without its account, and the period that it covers: rounded, and
// without what is in the future or no longer kept. The error is INVALID_REQUEST with every fault.
func (m *Monitor) costQuery(req *teamv1.ListCostsRequest) (q cost.Query, since, until time.Time, err error) {
	var faults []agent.Violation
	fault := func(field, what string) { faults = append(faults, agent.Violation{Field: field, Description: what}) }
	for _, f := range []struct{ field, value string }{{"team", req.GetTeam()}, {"account", req.GetAccount()}, {"model", req.GetModel()}} {
		if len(f.value) > maxName {
			fault(f.field, "is too long; it may have at most 1024 bytes")
		}
	}
	now := m.c.Clock()
	until = now.Add(1) // what is spent now is included
	if req.GetUntil() != nil {
		until = req.GetUntil().AsTime()
	}
	since = until.Add(-defaultPeriod)
	if req.GetSince() != nil {
		since = req.GetSince().AsTime()
	}
	if !since.Before(until) {
		fault("since", "must be before until, which is "+until.UTC().Format(time.RFC3339))
	}
	if len(faults) > 0 {
		return q, since, until, a2aerror.Invalid(faults...)
	}
	hourly := cost.DayOf(cost.HourOf(now.Add(-cost.Hourly)))
	if q.From = cost.HourOf(since); q.From < hourly {
		q.From = cost.DayOf(q.From)
	}
	if q.Until = cost.HourOf(until.Add(time.Hour - 1)); q.Until < hourly {
		q.Until = cost.DayOf(q.Until + 23)
	}
	oldest, next := cost.DayOf(cost.HourOf(now.Add(-cost.Kept))), cost.HourOf(now)+1 // there is nothing beyond them
	q.From, q.Until = min(max(q.From, oldest), next), min(max(q.Until, oldest), next)
	q.ByDay = req.GetGroupBy() == teamv1.CostGroup_COST_GROUP_DAY
	if req.GetModel() != "" {
		q.Model = &req.Model
	}
	return q, cost.TimeOf(q.From), cost.TimeOf(q.Until), nil
}

// shareCosts adds up sums by group.
func shareCosts(sums []cost.Sum, by teamv1.CostGroup) *teamv1.ListCostsResponse {
	resp, total, groups := &teamv1.ListCostsResponse{}, cost.Amounts{}, map[string]*cost.Amounts{}
	for _, s := range sums {
		total.Add(s.Amounts)
		key := groupOf(s.Key, by)
		if groups[key] == nil {
			groups[key] = &cost.Amounts{}
		}
		groups[key].Add(s.Amounts)
	}
	resp.Total = costShare("", total)
	if by == teamv1.CostGroup_COST_GROUP_UNSPECIFIED {
		return resp
	}
	for key, a := range groups {
		resp.Shares = append(resp.Shares, costShare(key, *a))
	}
	slices.SortFunc(resp.Shares, func(a, b *teamv1.CostShare) int {
		if by == teamv1.CostGroup_COST_GROUP_DAY {
			return cmp.Compare(a.GetKey(), b.GetKey())
		}
		x, y := a.GetSpent(), b.GetSpent()
		return cmp.Or(cmp.Compare(y.GetCostMicros(), x.GetCostMicros()), cmp.Compare(tokensOf(y), tokensOf(x)), cmp.Compare(a.GetKey(), b.GetKey()))
	})
	if n := len(resp.GetShares()); n > maxShares {
		resp.Shares, resp.Omitted = resp.GetShares()[:maxShares], int32(n-maxShares) //nolint:gosec // far less than 2^31
	}
	return resp
}

// groupOf returns the group that a cost belongs to.
func groupOf(k cost.Key, by teamv1.CostGroup) string {
	switch by {
	case teamv1.CostGroup_COST_GROUP_MEMBER:
		return k.Path
	case teamv1.CostGroup_COST_GROUP_TEAM:
		return k.Team
	case teamv1.CostGroup_COST_GROUP_MODEL:
		return k.Model
	case teamv1.CostGroup_COST_GROUP_ACCOUNT:
		return k.Account
	case teamv1.CostGroup_COST_GROUP_DAY:
		return cost.TimeOf(k.Hour).Format(time.DateOnly)
	case teamv1.CostGroup_COST_GROUP_UNSPECIFIED:
	}
	return ""
}

func tokensOf(s *teamv1.Spent) int64 { return s.GetInputTokens() + s.GetOutputTokens() }

func costShare(key string, a cost.Amounts) *teamv1.CostShare {
	return &teamv1.CostShare{Key: key, Spent: a.Spent(), Estimated: a.Estimated(), Claimed: a.Claimed()}
}
