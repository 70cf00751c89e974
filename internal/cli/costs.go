package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/spending"
)

// CostsQuery selects costs.
type CostsQuery struct {
	// By is member, team, model, account or day.
	By string
	// Since and Until are a day, a time, or a duration before now; see console.Time. An empty one is the
	// default of the server.
	Since, Until string
	// Team, Account and Model select costs; empty means all.
	Team, Account, Model string
}

// request returns the query as a request. The error names the flag.
func (q CostsQuery) request(now time.Time) (*teamv1.ListCostsRequest, error) {
	by, ok := teamv1.CostGroup_value["COST_GROUP_"+strings.ToUpper(q.By)]
	if !ok || by == 0 {
		return nil, fmt.Errorf("--by is %q; it must be member, team, model, account or day", q.By)
	}
	req := &teamv1.ListCostsRequest{GroupBy: teamv1.CostGroup(by), Team: q.Team, Account: q.Account, Model: q.Model}
	for _, f := range []struct {
		flag, text string
		to         **timestamppb.Timestamp
	}{{"since", q.Since, &req.Since}, {"until", q.Until, &req.Until}} {
		if f.text == "" {
			continue
		}
		at, err := console.Time(f.text, now)
		if errors.Is(err, strconv.ErrRange) {
			return nil, fmt.Errorf("--%s is %q; it may be at most %dd, and costs are kept for 400 days", f.flag, f.text, console.MaxDays)
		}
		if err != nil {
			return nil, fmt.Errorf("--%s is %q; it must be a day (2026-03-01, in UTC), a time (2026-03-01T15:00:00Z) or a duration before now (24h, 7d)", f.flag, f.text)
		}
		*f.to = timestamppb.New(at)
	}
	return req, nil
}

// Costs prints what tasks of the server have spent.
func (s *Shell) Costs(ctx context.Context, q CostsQuery) error {
	req, err := q.request(time.Now())
	if err != nil {
		return UsageError{Err: err}
	}
	c, err := s.Manager("costs")
	if err != nil {
		return err
	}
	defer c.Close()
	resp, err := c.ListCosts(ctx, req)
	switch {
	case err != nil:
		return err
	case s.JSON:
		return s.Print(resp)
	}
	s.Sayf("%s to %s UTC", resp.GetSince().AsTime().Format("2006-01-02 15:04"), resp.GetUntil().AsTime().Format("2006-01-02 15:04"))
	if len(resp.GetShares()) == 0 {
		s.Sayf("nothing was spent")
		return nil
	}
	resp.Total.Key = "total"
	rows := append(resp.GetShares(), resp.GetTotal())
	err = console.Table(&s.Console, rows, strings.ToUpper(q.By)+"\tUSD\tINPUT\tCACHED\tWRITTEN\tOUTPUT\tREASONING\tMODEL CALLS\tTOOL CALLS\tESTIMATED USD\tCLAIMED USD", func(c *teamv1.CostShare) []string {
		sp, mark := c.GetSpent(), ""
		if sp.GetEstimated() {
			mark = "~"
		}
		n := func(n int64) string { return strconv.FormatInt(n, 10) }
		return []string{
			cmp.Or(console.Line(c.GetKey()), "-"), mark + spending.Dollars(sp.GetCostMicros()), mark + n(sp.GetInputTokens()), n(sp.GetCachedInputTokens()), n(sp.GetCacheWriteTokens()),
			mark + n(sp.GetOutputTokens()), n(sp.GetReasoningTokens()), n(sp.GetModelCalls()), n(sp.GetToolCalls()), costPart(c.GetEstimated()), costPart(c.GetClaimed()),
		}
	})
	if err == nil && resp.GetOmitted() > 0 {
		s.Sayf("and %d more with lower costs", resp.GetOmitted())
	}
	return err
}

// costPart formats a part of a cost. It returns "-" for nil.
func costPart(sp *teamv1.Spent) string {
	if sp == nil {
		return "-"
	}
	return spending.Dollars(sp.GetCostMicros())
}
