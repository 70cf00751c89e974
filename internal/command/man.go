package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/serve"
)

// manCommand returns the command that writes the man pages of all commands. It is hidden: packagers run it.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man FOLDER",
		Short: "Writes man pages of all commands",
		Long: "Writes a man page of each command into a folder, which it makes if necessary. Their\n" +
			"date is that of the variable SOURCE_DATE_EPOCH, in seconds since 1970, or today.",
		Example: "  team-server man /usr/local/share/man/man1",
		Hidden:  true,
		Args:    usage(named("FOLDER")),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // man pages are for all users
				var path *fs.PathError
				if errors.As(err, &path) {
					return console.UsageError{Err: fmt.Errorf("man: %s is not a folder that can be written: %w", args[0], path.Err)}
				}
				return err
			}
			root := c.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "team-server " + serve.Version(), Manual: "team-server"}, args[0])
		},
	}
}
