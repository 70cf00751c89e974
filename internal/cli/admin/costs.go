package admin

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
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

// request returns the query as a request. The error is a UsageError that names the flag.
func (q CostsQuery) request(now time.Time) (*teamv1.ListCostsRequest, error) {
	by, ok := teamv1.CostGroup_value["COST_GROUP_"+strings.ToUpper(q.By)]
	if !ok || by == 0 {
		return nil, console.Usagef("--by %s: expected member, team, model, account or day", q.By)
	}
	req := &teamv1.ListCostsRequest{GroupBy: teamv1.CostGroup(by), Team: q.Team, Account: q.Account, Model: q.Model}
	var err error
	if req.Since, err = console.Time("since", q.Since, now); err != nil {
		return nil, err
	}
	if req.Until, err = console.Time("until", q.Until, now); err != nil {
		return nil, err
	}
	return req, nil
}

// Costs prints what tasks of the server have spent.
func (c *Commands) Costs(ctx context.Context, q CostsQuery) error {
	req, err := q.request(time.Now())
	if err != nil {
		return err
	}
	resp, err := console.Ask(c.Connection, "costs", func(server *client.Team) (*teamv1.ListCostsResponse, error) { return server.ListCosts(ctx, req) })
	switch {
	case err != nil:
		return err
	case c.Console.JSON:
		return c.Console.Print(resp)
	}
	c.Console.Sayf("%s to %s UTC", resp.GetSince().AsTime().Format("2006-01-02 15:04"), resp.GetUntil().AsTime().Format("2006-01-02 15:04"))
	if len(resp.GetShares()) == 0 {
		c.Console.Sayf("nothing was spent")
		return nil
	}
	resp.Total.Key = "total"
	rows := append(resp.GetShares(), resp.GetTotal())
	err = console.Table(c.Console, rows, strings.ToUpper(q.By)+"\tUSD\tINPUT\tCACHED\tWRITTEN\tOUTPUT\tREASONING\tMODEL CALLS\tTOOL CALLS\tESTIMATED USD\tCLAIMED USD", func(share *teamv1.CostShare) []string {
		sp, mark := share.GetSpent(), ""
		if sp.GetEstimated() {
			mark = "~"
		}
		n := func(n int64) string { return strconv.FormatInt(n, 10) }
		return []string{
			cmp.Or(console.Line(share.GetKey()), "-"), mark + spending.Dollars(sp.GetCostMicros()), mark + n(sp.GetInputTokens()), n(sp.GetCachedInputTokens()), n(sp.GetCacheWriteTokens()),
			mark + n(sp.GetOutputTokens()), n(sp.GetReasoningTokens()), n(sp.GetModelCalls()), n(sp.GetToolCalls()), costPart(share.GetEstimated()), costPart(share.GetClaimed()),
		}
	})
	if err == nil && resp.GetOmitted() > 0 {
		c.Console.Sayf("and %d more with lower costs", resp.GetOmitted())
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
