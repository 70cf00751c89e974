package command

import (
	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/admin"
)

func costsCommand(s *cli.Shell) *cobra.Command {
	on := &admin.Commands{Console: &s.Console, Connection: &s.Connection}
	var q admin.CostsQuery
	c := &cobra.Command{
		Use: "costs", Short: "Shows what tasks have spent",
		Long: "Shows what the tasks of the running server that --server names have spent in a period, those\n" +
			"that run and those that have been deleted included. Amounts with a ~ include estimates;\n" +
			"claimed ones were reported by other servers. If the server has API keys, one with\n" +
			"the permission ADMIN, given with --token, shows all accounts, and any other key its own.",
		Example: "  team-server costs --by model --since 24h\n  team-server costs --by day --team newsroom --since 2026-03-01 --until 2026-04-01",
		Args:    usage(noArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return on.Costs(c.Context(), q) },
	}
	f := c.Flags()
	f.StringVar(&q.By, "by", "member", "member, team, model, account or day")
	f.StringVar(&q.Since, "since", "", "beginning: a day, a time, or a duration before now (24h, 7d); 30 days before the end if empty")
	f.StringVar(&q.Until, "until", "", "end, in the same forms, a day not included; now if empty")
	f.StringVar(&q.Team, "team", "", "only costs of this team, and of all below it")
	f.StringVar(&q.Account, "account", "", "only costs of this account")
	f.StringVar(&q.Model, "model", "", "only costs of this model")
	return c
}
