package command

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
			"otherwise. Exits with 4 if scenarios fail, with 3 if a file has faults. With --model real, the\n" +
			"models of the configuration are called, one scenario after the other; what depends on their\n" +
			"words is not checked. Tools and remote agents keep their scripts.",
		Example: "  team-server test\n" +
			"  team-server test examples --run \"newsroom .*first\" -v\n" +
			"  team-server test --model real --max-cost 0.20",
		RunE: func(c *cobra.Command, args []string) error { return s.Test(c.Context(), args, f) },
	}
	c.Flags().StringVar(&f.Run, "run", "", "play only scenarios whose \"TEAM NAME\" matches this regular expression")
	c.Flags().BoolVarP(&f.Verbose, "verbose", "v", false, "print a transcript of each run")
	c.Flags().StringVar(&f.Model, "model", "", "real calls the models of the configuration; scripts by default")
	c.Flags().StringVar(&f.MaxCost, "max-cost", "", "with --model real: the most that all scenarios may cost, in USD")
	c.AddCommand(testRecordCommand(s))
	return c
}

func testRecordCommand(s *cli.Shell) *cobra.Command {
	f := &cli.Recorder{Shell: s}
	c := &cobra.Command{
		Use:   "record TASK",
		Short: "Writes a test that plays a task of a running server again",
		Long: "Reads a task that has ended, and those before it in its conversation, from the running server that\n" +
			"--server names, and writes a test file with what models, tools and other agents answered. The test\n" +
			"calls none of them. Then plays the test, and exits with 4 if it fails. The configuration has to be\n" +
			"that of the server. Texts are written as they were: read the file before you share it.",
		Example: "  team-server test record 0198c5e2-… --out refund_test.yaml",
		Args:    usage(named("TASK")),
		RunE:    func(c *cobra.Command, args []string) error { return f.Record(c.Context(), args[0]) },
	}
	c.Flags().StringVar(&f.Out, "out", "", "test file to write; TEAM_ID_test.yaml in the working folder by default")
	fileFlags(c.Flags(), &f.File, "file", fileHelp+"; team.yaml beside the test file by default")
	return c
}
