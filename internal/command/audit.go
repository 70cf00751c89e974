package command

import (
	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/admin"
)

func auditCommand(s *cli.Shell) *cobra.Command {
	on := &admin.Commands{Console: &s.Console, Connection: &s.Connection}
	var q admin.AuditQuery
	ls := &cobra.Command{
		Use: "ls", Short: "Lists the records of an account, oldest first",
		Example: "  team-server audit ls --account acme\n  team-server audit ls --account - --after 200",
		Args:    usage(noArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return on.ListAudit(c.Context(), q) },
	}
	ls.Flags().StringVar(&q.Account, "account", "default", "account; - for records of the server itself, such as failed sign-ins")
	ls.Flags().Int64Var(&q.After, "after", 0, "only records after this one")
	var account, head string
	verify := &cobra.Command{
		Use: "verify", Short: "Checks that no record of an account was changed, and prints the head",
		Long: "Checks the chain of an account from its first record and prints its head, SEQ:HASH. Keep\n" +
			"the head elsewhere: with --head, verify also finds that records were removed at the end,\n" +
			"or that the whole chain was written anew. Exits with 1 if the chain is broken.",
		Example: "  team-server audit verify --account acme\n  team-server audit verify --account acme --head 120:9f86d081884c7d65…",
		Args:    usage(noArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return on.VerifyAudit(c.Context(), account, head) },
	}
	verify.Flags().StringVar(&account, "account", "default", "account; - for records of the server itself")
	verify.Flags().StringVar(&head, "head", "", "head that an earlier verify has printed")
	return group("audit", "Shows who changed what, and who was refused",
		"Reads the audit log of the running server that --server names: changes of teams, keys,\n"+
			"limits and halts, approvals, and calls that were refused. The commands need a key with the\n"+
			"permission ADMIN, given with --token.",
		ls, verify)
}
