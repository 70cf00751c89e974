package main

import (
	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/app"
)

func testCommand(s *app.Shell) *cobra.Command {
	f := app.TestFlags{}
	c := &cobra.Command{
		Use:   "test [FILE|FOLDER...]",
		Short: "Plays the scenarios of *_test.yaml files, without a model and a network",
		Long: "Plays each scenario of test files, or of the *_test.yaml in folders and the folders\n" +
			"in these, against the teams of the configuration beside it: models play scripts,\n" +
			"agents on other servers do steps. Default: the working folder. A scenario that fails\n" +
			"is told with the place of what was expected and why the team decided otherwise.\n" +
			"Exit code 4 when scenarios fail, 3 when a file has faults.",
		Example: "  team-server test\n" +
			"  team-server test examples --run \"newsroom .*first\" -v",
		RunE: func(c *cobra.Command, args []string) error { return s.Test(c.Context(), args, f) },
	}
	c.Flags().StringVar(&f.Run, "run", "", "play only the scenarios whose team and name, as TEAM NAME, match this regular expression")
	c.Flags().BoolVarP(&f.Verbose, "verbose", "v", false, "tell how each run went")
	return c
}
