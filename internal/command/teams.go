package command

import (
	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/teams"
)

// group returns a command that only has subcommands.
func group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: usage(noArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(commands...)
	return c
}

func teamsCommand(s *cli.Shell) *cobra.Command {
	on := &teams.Commands{Console: &s.Console, Connection: &s.Connection}
	return group("teams", "Creates, changes and deletes teams of a running server",
		"Manages the teams of the running server that --server names. Teams defined in its\n"+
			"configuration file are read-only here. If the server has API keys, changes need one\n"+
			"with the permission MANAGE, given with --token.",
		teamsApplyCommand(on), teamsDiffCommand(on),
		&cobra.Command{
			Use: "get TEAM", Short: "Prints the definition of a team", Example: "  team-server teams get desk > desk.yaml",
			Args: usage(named("TEAM")),
			RunE: func(c *cobra.Command, args []string) error { return on.GetTeam(c.Context(), args[0]) },
		},
		&cobra.Command{
			Use: "ls", Short: "Lists the teams", Args: usage(noArgs),
			RunE: func(c *cobra.Command, _ []string) error { return on.ListTeams(c.Context()) },
		},
		&cobra.Command{
			Use: "delete TEAM", Short: "Deletes a team; its running tasks finish", Example: "  team-server teams delete desk",
			Args: usage(named("TEAM")),
			RunE: func(c *cobra.Command, args []string) error { return on.DeleteTeam(c.Context(), args[0]) },
		})
}

func teamsApplyCommand(on *teams.Commands) *cobra.Command {
	var file string
	var dry bool
	c := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Creates or changes the teams of a file",
		Long: "Creates each team of a file on the server, or changes it if it differs. The file has\n" +
			"the format of the configuration file, but defines only agents and teams, and uses\n" +
			"models and tools of the server's configuration file by name. Each team is applied\n" +
			"together with the agents it works with. With --dry-run the server only validates\n" +
			"the changes. Exits with 3 if there are faults.",
		Example: "  team-server teams apply -f desk.yaml --server http://127.0.0.1:8080",
		Args:    usage(oneFile(&file)),
		RunE:    func(c *cobra.Command, _ []string) error { return on.ApplyTeams(c.Context(), file, dry) },
	}
	fileFlags(c.Flags(), &file, "file", fileHelp)
	c.Flags().BoolVar(&dry, "dry-run", false, "only validate the changes")
	return c
}

func teamsDiffCommand(on *teams.Commands) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Shows what apply would change",
		Long:  "Prints how the teams of a file differ from those of the server. Exits with 1 if they\ndiffer.",
		Args:  usage(oneFile(&file)),
		RunE:  func(c *cobra.Command, _ []string) error { return on.DiffTeams(c.Context(), file) },
	}
	fileFlags(c.Flags(), &file, "file", fileHelp)
	return c
}

func agentsCommand(s *cli.Shell) *cobra.Command {
	on := &teams.Commands{Console: &s.Console, Connection: &s.Connection}
	var skill, kind string
	ls := &cobra.Command{
		Use: "ls", Short: "Lists the agents and teams",
		Long: "Lists the agents and teams of the server that --server names.", Args: usage(noArgs),
		RunE: func(c *cobra.Command, _ []string) error { return on.ListAgents(c.Context(), skill, kind) },
	}
	ls.Flags().StringVar(&skill, "skill", "", "only those with this skill")
	ls.Flags().StringVar(&kind, "kind", "", "only this kind: model, scripted, grpc, a2a, program or team")
	get := &cobra.Command{
		Use: "get AGENT", Short: "Shows what an agent or team says about itself, and its health", Example: "  team-server agents get writer",
		Args: usage(named("AGENT")),
		RunE: func(c *cobra.Command, args []string) error { return on.GetAgent(c.Context(), args[0]) },
	}
	check := &cobra.Command{
		Use: "check", Short: "Checks the health of each agent",
		Long: "Makes the server check the health of each agent. For remote agents it fetches their\n" +
			"cards. Exits with 1 if an agent is down.",
		Args: usage(noArgs),
		RunE: func(c *cobra.Command, _ []string) error { return on.CheckAgents(c.Context()) },
	}
	return group("agents", "Lists and checks the agents of a running server", "Lists and checks the agents and teams of the server that --server names.", ls, get, check)
}
