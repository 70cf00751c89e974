package command

import (
	"github.com/spf13/cobra"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/admin"
)

func accountsCommand(s *cli.Shell) *cobra.Command {
	on := &admin.Commands{Console: &s.Console, Connection: &s.Connection}
	return group("accounts", "Limits what the tasks of an account spend",
		"Shows and sets the limits of accounts of the running server that --server names.\n"+
			"Limits in its configuration file (server.accounts) are read-only here. If the server\n"+
			"has API keys, this needs one with the permission ADMIN, given with --token, except to show\n"+
			"the account of the key itself.",
		&cobra.Command{
			Use: "ls", Short: "Lists the accounts that have limits, and what they have spent today",
			Args: usage(noArgs),
			RunE: func(c *cobra.Command, _ []string) error { return on.ListAccounts(c.Context()) },
		},
		&cobra.Command{
			Use: "get [ACCOUNT]", Short: "Shows an account; without an argument, your own",
			Args: usage(atMostOne("ACCOUNT")),
			RunE: func(c *cobra.Command, args []string) error {
				return on.GetAccount(c.Context(), append(args, "-")[0])
			},
		},
		accountsSetCommand(on),
		&cobra.Command{
			Use: "unset ACCOUNT", Short: "Removes the limits of an account",
			Example: "  team-server accounts unset acme", Args: usage(named("ACCOUNT")),
			RunE: func(c *cobra.Command, args []string) error { return on.SetAccountLimits(c.Context(), args[0], nil) },
		})
}

func accountsSetCommand(on *admin.Commands) *cobra.Command {
	var tokens, inFlightTokens int64
	var cost, inFlightCost float64
	var zone string
	c := &cobra.Command{
		Use:   "set ACCOUNT",
		Short: "Sets the limits of an account",
		Long: "Replaces all limits of an account. What it has spent today still counts. Tasks that are\n" +
			"running use changed limits at their next step.",
		Example: "  team-server accounts set acme --max-cost-per-day 20 --time-zone Europe/Berlin",
		Args:    usage(named("ACCOUNT")),
	}
	f := c.Flags()
	f.Int64Var(&tokens, "max-tokens-per-day", 0, "input and output tokens on a day")
	f.Float64Var(&cost, "max-cost-per-day", 0, "cost in USD on a day")
	f.Int64Var(&inFlightTokens, "max-tokens-in-flight", 0, "tokens that may be reserved at the same time")
	f.Float64Var(&inFlightCost, "max-cost-in-flight", 0, "cost in USD that may be reserved at the same time")
	f.StringVar(&zone, "time-zone", "", "IANA time zone in which a day begins; UTC if empty")
	c.RunE = func(c *cobra.Command, args []string) error {
		l := &teamv1.AccountLimits{TimeZone: zone}
		for name, set := range map[string]func(){
			"max-tokens-per-day": func() { l.MaxTokensPerDay = &tokens }, "max-cost-per-day": func() { l.MaxCostPerDay = &cost },
			"max-tokens-in-flight": func() { l.MaxTokensInFlight = &inFlightTokens }, "max-cost-in-flight": func() { l.MaxCostInFlight = &inFlightCost },
		} {
			if f.Changed(name) {
				set()
			}
		}
		return on.SetAccountLimits(c.Context(), args[0], l)
	}
	return c
}
