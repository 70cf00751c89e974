package admin

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// ListAccounts prints the accounts of the server that have limits.
func (c *Commands) ListAccounts(ctx context.Context) error {
	accounts, err := console.Ask(c.Connection, "accounts ls", func(server *client.Team) ([]*teamv1.Account, error) { return server.ListAccounts(ctx) })
	if err != nil {
		return err
	}
	return c.accounts(accounts)
}

// GetAccount prints an account; "-" means that of the caller.
func (c *Commands) GetAccount(ctx context.Context, name string) error {
	a, err := console.Ask(c.Connection, "accounts get", func(server *client.Team) (*teamv1.Account, error) { return server.GetAccount(ctx, name) })
	if err != nil {
		return err
	}
	return c.accounts([]*teamv1.Account{a})
}

// SetAccountLimits sets the limits of an account, or removes them if l is nil, and prints it.
func (c *Commands) SetAccountLimits(ctx context.Context, name string, l *teamv1.AccountLimits) error {
	a, err := console.Ask(c.Connection, "accounts set", func(server *client.Team) (*teamv1.Account, error) { return server.SetAccountLimits(ctx, name, l) })
	if err != nil {
		return err
	}
	return c.accounts([]*teamv1.Account{a})
}

// accounts prints accounts: what is spent and reserved of each limit, when the next day begins, and the other limits.
func (c *Commands) accounts(list []*teamv1.Account) error {
	return console.Table(c.Console, list, "ACCOUNT\tTOKENS PER DAY\tUSD PER DAY\tTOKENS IN FLIGHT\tUSD IN FLIGHT\tNEXT DAY\tOTHER LIMITS", func(a *teamv1.Account) []string {
		l := a.GetLimits()
		day := agent.Cost{
			Tokens: a.GetSpent().GetTokens() + a.GetReserved().GetTokens(), Micros: a.GetSpent().GetCostMicros() + a.GetReserved().GetCostMicros(),
		}
		if l == nil {
			l = &teamv1.AccountLimits{}
		}
		next := "-"
		if a.GetResetTime() != nil {
			next = a.GetResetTime().AsTime().UTC().Format(time.RFC3339) + " (" + cmp.Or(l.GetTimeZone(), "UTC") + ")"
		}
		return []string{
			a.GetAccount(), usedTokens(day.Tokens, l.MaxTokensPerDay), usedMoney(day.Micros, l.MaxCostPerDay),
			usedTokens(a.GetInFlight().GetTokens(), l.MaxTokensInFlight), usedMoney(a.GetInFlight().GetCostMicros(), l.MaxCostInFlight),
			next, cmp.Or(strings.Join(otherLimits(l.ProtoReflect(), ""), ", "), "-"),
		}
	})
}

// usedTokens returns what is used of a limit, or "-" if there is neither.
func usedTokens(used int64, limit *int64) string {
	switch {
	case limit != nil:
		return strconv.FormatInt(used, 10) + "/" + strconv.FormatInt(*limit, 10)
	case used == 0:
		return "-"
	}
	return strconv.FormatInt(used, 10)
}

// usedMoney is usedTokens for an amount of money.
func usedMoney(used int64, limit *float64) string {
	switch {
	case limit != nil:
		return spending.Dollars(used) + "/" + spending.Dollars(agent.Micros(*limit))
	case used == 0:
		return "-"
	}
	return spending.Dollars(used)
}

// inColumns are the limits that have columns of their own.
var inColumns = []protoreflect.Name{"max_tokens_per_day", "max_cost_per_day", "max_tokens_in_flight", "max_cost_in_flight", "time_zone"}

// otherLimits returns the limits that are set and have no column, with the names of their keys in the file.
func otherLimits(limits protoreflect.Message, prefix string) (all []string) {
	fields := limits.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case !limits.Has(f), slices.Contains(inColumns, f.Name()):
		case f.Message() != nil:
			all = append(all, otherLimits(limits.Get(f).Message(), string(f.Name())+".")...)
		case f.Kind() == protoreflect.DoubleKind: // not 1e+06
			all = append(all, prefix+string(f.Name())+": "+strconv.FormatFloat(limits.Get(f).Float(), 'f', -1, 64))
		default:
			all = append(all, prefix+string(f.Name())+": "+limits.Get(f).String())
		}
	}
	return all
}
