package command

import (
	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/tools"
)

func toolsCommand(s *cli.Shell) *cobra.Command {
	file := ""
	with := func(do func(*tools.Commands) error) error {
		def, err := s.Definition(file)
		if err != nil {
			return err
		}
		return do(&tools.Commands{Console: &s.Console, Definition: def})
	}
	c := group("tools", "Lists and calls the tools of the MCP servers of a configuration file",
		"Starts the MCP servers of a configuration file, or connects to them, without a team-server and\n"+
			"without a model. Like run, it reads .env.",
		&cobra.Command{
			Use: "ls [SERVER]", Short: "Lists the tools, with their effects", Example: "  team-server tools ls -f team.yaml",
			Long: "Lists the tools of the MCP servers of the file, or of one, with the names that agents know and\n" +
				"the effects that apply. Exits with 1 if a server does not answer.",
			Args: usage(atMostOne("SERVER")),
			RunE: func(c *cobra.Command, args []string) error {
				return with(func(t *tools.Commands) error { return t.List(c.Context(), append(args, "")[0]) })
			},
		},
		&cobra.Command{
			Use: "call TOOL [JSON]", Short: "Calls a tool and prints its result", Example: "  team-server tools call web/fetch '{\"url\": \"https://example.com\"}'",
			Long: "Calls a tool, named as agents know it or as SERVER/TOOL, with the arguments of a JSON object.\n" +
				"The call does not wait for an approval. Exits with 1 if the tool fails.",
			Args: usage(cobra.RangeArgs(1, 2)),
			RunE: func(c *cobra.Command, args []string) error {
				return with(func(t *tools.Commands) error { return t.Call(c.Context(), args[0], append(args, "{}")[1]) })
			},
		})
	fileFlags(c.PersistentFlags(), &file, "file", fileHelp+"; default: ./team.yaml, or the demo")
	return c
}
