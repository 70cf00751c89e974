package command

import (
	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/models"
)

func modelsCommand(s *cli.Shell) *cobra.Command {
	file := ""
	with := func(do func(*models.Commands) error) error {
		def, err := s.Definition(file)
		if err != nil {
			return err
		}
		return do(&models.Commands{Console: &s.Console, Definition: def})
	}
	ls := &cobra.Command{
		Use: "ls", Short: "Lists the models of a configuration file", Example: "  team-server models ls -f team.yaml",
		Long: "Lists the models of a configuration file with their prices, and where those are from.",
		Args: usage(noArgs),
		RunE: func(*cobra.Command, []string) error { return with((*models.Commands).List) },
	}
	test := &cobra.Command{
		Use: "test MODEL", Short: "Calls a model and says what works", Example: "  team-server models test fast -f team.yaml",
		Long: "Makes three small calls to a model of a configuration file, and says whether text, streaming,\n" +
			"calls of tools and answers by a JSON Schema work, whether the endpoint reports what was used,\n" +
			"whether the price is known, and what the calls have cost. Before, it says what they can cost\n" +
			"at most. Fallbacks are not called. Exits with 1 if the model gives no answer.",
		Args: usage(named("MODEL")),
		ValidArgsFunction: first(func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
			_ = with(func(m *models.Commands) error { names = m.Names(); return nil }) // a faulty file has no names
			return names, cobra.ShellCompDirectiveNoFileComp
		}),
		RunE: func(c *cobra.Command, args []string) error {
			return with(func(m *models.Commands) error { return m.Test(c.Context(), args[0]) })
		},
	}
	for _, c := range []*cobra.Command{ls, test} {
		fileFlags(c.Flags(), &file, "file", fileHelp+"; default: ./team.yaml, or the demo")
	}
	return group("models", "Lists and tests models, and lists prices",
		"Lists and tests the models of a configuration file without a team-server, and lists the prices\n"+
			"that this program ships with. Like run, it reads .env.",
		ls, test,
		&cobra.Command{
			Use: "prices [PATTERN]", Short: "Lists the prices of public models that models without price have", Example: "  team-server models prices openai/gpt-5",
			Long: "Lists prices of public models in USD per million tokens, as they were when the program was\n" +
				"built. A model of the file without price has that of its provider and name, unless base_url\n" +
				"is another address. PATTERN is a part of PROVIDER/NAME, in which * stands for any text.\n" +
				"A date may follow a name that ends with *. Where a provider has several prices, they are the\n" +
				"highest, so that limits hold.",
			Args:              usage(atMostOne("PATTERN")),
			ValidArgsFunction: cobra.NoFileCompletions,
			RunE: func(_ *cobra.Command, args []string) error {
				return (&models.Commands{Console: &s.Console}).Prices(append(args, "")[0])
			},
		})
}
