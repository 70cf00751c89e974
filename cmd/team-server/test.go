package main

import (
	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/cli"
)

func testCommand(s *cli.Shell) *cobra.Command {
	f := cli.TestFlags{}
	c := &cobra.Command{
		Use:   "test [FILE|FOLDER...]",
		Short: "Plays the scenarios of *_test.yaml files, without models or network",
		Long: "Plays each scenario of test files, or of the *_test.yaml files in folders and their\n" +
			"subfolders, against the teams of the configuration next to it. Models are replaced\n" +
			"by scripts and remote agents by scripted steps. Default: the working folder. For a\n" +
			"scenario that fails, prints the position of the expectation and why the team decided\n" +
			"otherwise. Exits with 4 if scenarios fail, with 3 if a file has faults.",
		Example: "  team-server test\n" +
			"  team-server test examples --run \"newsroom .*first\" -v",
		RunE: func(c *cobra.Command, args []string) error { return s.Test(c.Context(), args, f) },
	}
	c.Flags().StringVar(&f.Run, "run", "", "play only scenarios whose \"TEAM NAME\" matches this regular expression")
	c.Flags().BoolVarP(&f.Verbose, "verbose", "v", false, "print a transcript of each run")
	return c
}
