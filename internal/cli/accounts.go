package cli

import (
	"cmp"
	"context"
	"strconv"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// ListAccounts prints the accounts of the server that have limits.
func (s *Shell) ListAccounts(ctx context.Context) error {
	c, err := s.manager("accounts ls")
	if err != nil {
		return err
	}
	defer c.Close()
	accounts, err := c.ListAccounts(ctx)
	if err != nil {
		return err
	}
	return s.accounts(accounts)
}

// GetAccount prints an account; "-" means that of the caller.
func (s *Shell) GetAccount(ctx context.Context, name string) error {
	c, err := s.manager("accounts get")
	if err != nil {
		return err
	}
	defer c.Close()
	a, err := c.GetAccount(ctx, name)
	if err != nil {
		return err
	}
	return s.accounts([]*teamv1.Account{a})
}

// SetAccountLimits sets the limits of an account, or removes them if l is nil, and prints it.
func (s *Shell) SetAccountLimits(ctx context.Context, name string, l *teamv1.AccountLimits) error {
	c, err := s.manager("accounts set")
	if err != nil {
		return err
	}
	defer c.Close()
	a, err := c.SetAccountLimits(ctx, name, l)
	if err != nil {
		return err
	}
	return s.accounts([]*teamv1.Account{a})
}

// accounts prints accounts: what is spent and reserved of each limit, and when the next day begins.
func (s *Shell) accounts(list []*teamv1.Account) error {
	return table(s, list, "ACCOUNT\tTOKENS PER DAY\tUSD PER DAY\tTOKENS IN FLIGHT\tUSD IN FLIGHT\tNEXT DAY", func(a *teamv1.Account) []string {
		l := a.GetLimits()
		if l == nil {
			return []string{a.GetAccount(), "-", "-", "-", "-", "-"}
		}
		day := agent.Cost{
			Tokens: a.GetSpent().GetTokens() + a.GetReserved().GetTokens(), Micros: a.GetSpent().GetCostMicros() + a.GetReserved().GetCostMicros(),
		}
		tokens := func(used int64, limit *int64) string {
			if limit == nil {
				return strconv.FormatInt(used, 10)
			}
			return strconv.FormatInt(used, 10) + "/" + strconv.FormatInt(*limit, 10)
		}
		money := func(used int64, limit *float64) string {
			if limit == nil {
				return agent.Dollars(used)
			}
			return agent.Dollars(used) + "/" + agent.Dollars(agent.Micros(*limit))
		}
		zone := cmp.Or(l.GetTimeZone(), "UTC")
		return []string{
			a.GetAccount(), tokens(day.Tokens, l.MaxTokensPerDay), money(day.Micros, l.MaxCostPerDay),
			tokens(a.GetInFlight().GetTokens(), l.MaxTokensInFlight), money(a.GetInFlight().GetCostMicros(), l.MaxCostInFlight),
			a.GetResetTime().AsTime().UTC().Format(time.RFC3339) + " (" + zone + ")",
		}
	})
}
