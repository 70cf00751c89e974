package command

import (
	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/admin"
)

func keysCommand(s *cli.Shell) *cobra.Command {
	on := &admin.Commands{Console: &s.Console, Connection: &s.Connection}
	return group("keys", "Makes and revokes API keys of a running server",
		"Makes, lists and revokes API keys of the running server that --server names, without a\n"+
			"restart. Keys in its configuration file (server.auth.api_keys) are not listed: they are\n"+
			"changed there. The commands need a key with the permission ADMIN, given with --token;\n"+
			"keys new --name NAME --offline makes the first one.",
		keysNewCommand(on),
		&cobra.Command{
			Use: "ls", Short: "Lists the keys that were made by keys new, also those that have ended",
			Args: usage(noArgs),
			RunE: func(c *cobra.Command, _ []string) error { return on.ListKeys(c.Context()) },
		},
		&cobra.Command{
			Use: "revoke ID", Short: "Ends a key, and within seconds the streams of its callers",
			Example: "  team-server keys revoke mfrggzdfmy", Args: usage(named("ID")),
			RunE: func(c *cobra.Command, args []string) error { return on.RevokeKey(c.Context(), args[0]) },
		})
}

func keysNewCommand(on *admin.Commands) *cobra.Command {
	f := &admin.NewKey{}
	c := &cobra.Command{
		Use:   "new --name NAME",
		Short: "Makes a key and prints it",
		Long: "Makes a key of 256 random bits. It is printed once: the server keeps its hash only. With\n" +
			"--offline no server is called: the entry for server.auth.api_keys is printed, too.",
		Example: "  team-server keys new --name ann --account acme --expires 90d\n" +
			"  team-server keys new --name root --permissions READ,CALL,ANSWER,WATCH,MANAGE,HALT,ADMIN --offline",
		Args: usage(noArgs),
		RunE: func(c *cobra.Command, _ []string) error { return on.NewKey(c.Context(), f) },
	}
	c.Flags().StringVar(&f.Name, "name", "", "name of the principal")
	c.Flags().StringVar(&f.Account, "account", "", "account of the principal; default if empty")
	c.Flags().StringVar(&f.Expires, "expires", "", "when the key ends: a duration (90d, 12h), a day or a time; never if empty")
	c.Flags().StringSliceVar(&f.Permissions, "permissions", nil, "READ, CALL, ANSWER, WATCH, MANAGE, HALT, ADMIN; the first three if empty")
	c.Flags().StringSliceVar(&f.Roles, "roles", nil, "roles of the key")
	c.Flags().BoolVar(&f.Offline, "offline", false, "call no server, and print the entry for server.auth.api_keys")
	return c
}
