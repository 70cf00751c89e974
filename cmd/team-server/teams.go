package main

import (
	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/app"
)

// group is a command that has commands only.
func group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: usage(nothing),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(commands...)
	return c
}

func teamsCommand(s *app.Shell) *cobra.Command {
	return group("teams", "Makes, changes and deletes teams of a running server",
		"Manages teams of the server given with --server while it serves them. Teams of its\n"+
			"file are shown, and changed in the file. Where the server has API keys, the one\n"+
			"given with --token must have manage: true to change something.",
		teamsApplyCommand(s), teamsDiffCommand(s),
		&cobra.Command{
			Use: "get TEAM", Short: "Prints the definition of a team", Example: "  team-server teams get desk > desk.yaml",
			Args: usage(named("TEAM")),
			RunE: func(c *cobra.Command, args []string) error { return s.GetTeam(c.Context(), args[0]) },
		},
		&cobra.Command{
			Use: "ls", Short: "Lists the teams", Args: usage(nothing),
			RunE: func(c *cobra.Command, _ []string) error { return s.ListTeams(c.Context()) },
		},
		&cobra.Command{
			Use: "delete TEAM", Short: "Deletes a team; its tasks go on to their end", Example: "  team-server teams delete desk",
			Args: usage(named("TEAM")),
			RunE: func(c *cobra.Command, args []string) error { return s.DeleteTeam(c.Context(), args[0]) },
		})
}

func teamsApplyCommand(s *app.Shell) *cobra.Command {
	var file string
	var dry bool
	c := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Makes or changes the teams of a file",
		Long: "Makes each team of a file on the server, or changes it if it is another one there.\n" +
			"The file has the form of the server's, with agents and teams alone; models and tools\n" +
			"are those of the server's file. Of several teams each takes along the agents that it\n" +
			"works with. With --dry-run nothing is done but to find out whether it could be.\n" +
			"Exit code 3 when there are faults.",
		Example: "  team-server teams apply -f desk.yaml --server http://127.0.0.1:8080",
		Args:    usage(byFlag("-f")),
		RunE:    func(c *cobra.Command, _ []string) error { return s.ApplyTeams(c.Context(), file, dry) },
	}
	c.Flags().StringVarP(&file, "file", "f", "", "the file, or a folder with a team.yaml")
	c.Flags().BoolVar(&dry, "dry-run", false, "only find out whether it could be done")
	return c
}

func teamsDiffCommand(s *app.Shell) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Shows what apply would change",
		Long:  "Shows how the teams of a file differ from those of the server. Exit code 1 when\nthey do.",
		Args:  usage(byFlag("-f")),
		RunE:  func(c *cobra.Command, _ []string) error { return s.DiffTeams(c.Context(), file) },
	}
	c.Flags().StringVarP(&file, "file", "f", "", "the file, or a folder with a team.yaml")
	return c
}

func agentsCommand(s *app.Shell) *cobra.Command {
	var skill, kind string
	ls := &cobra.Command{
		Use: "ls", Short: "Lists the agents and teams",
		Long: "Lists the agents and teams of the server given with --server.", Args: usage(nothing),
		RunE: func(c *cobra.Command, _ []string) error { return s.ListAgents(c.Context(), skill, kind) },
	}
	ls.Flags().StringVar(&skill, "skill", "", "only those with this skill")
	ls.Flags().StringVar(&kind, "kind", "", "only this kind: model, scripted, grpc, a2a, conformance or team")
	check := &cobra.Command{
		Use: "check", Short: "Asks each agent how it is",
		Long: "Has the server ask each agent how it is. Those of other servers are called, and\n" +
			"their cards read. Exit code 1 when one is down.",
		Args: usage(nothing),
		RunE: func(c *cobra.Command, _ []string) error { return s.CheckAgents(c.Context()) },
	}
	return group("agents", "Lists and checks the agents of a running server", "Shows the agents and teams of the server given with --server.", ls, check)
}
