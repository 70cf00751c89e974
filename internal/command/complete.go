package command

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/tasks"
)

// completeNames lets shells complete the names of teams and the ids of tasks of the running server that --server or
// TEAM_SERVER names: the arguments TEAM, AGENT and TASK of all commands, and the flags --team.
func completeNames(c *cobra.Command, s *cli.Shell) {
	on := &tasks.Commands{Console: &s.Console, Connection: &s.Connection}
	names := strings.Fields(c.Use)[1:]
	teams := words(s, func(ctx context.Context) []string { return on.Teams(ctx) })
	if len(names) > 0 && c.ValidArgsFunction == nil {
		switch strings.TrimSuffix(strings.Trim(names[0], "[]"), "...") {
		case "TEAM", "AGENT":
			c.ValidArgsFunction = first(teams)
		case "TASK":
			c.ValidArgsFunction = first(words(s, func(ctx context.Context) []string { return on.Tasks(ctx, statesFor[c.Name()]...) }))
		}
	}
	if c.Flags().Lookup("team") != nil {
		_ = c.RegisterFlagCompletionFunc("team", teams) // the flag exists
	}
	for _, below := range c.Commands() {
		completeNames(below, s)
	}
}

// statesFor has, by command, the states of the tasks that it is completed with. A command that is not in it is completed
// with tasks in any state.
var statesFor = map[string][]string{"record": {"completed", "failed", "rejected"}, "retry": {"failed", "canceled", "rejected"}, "cancel": {"working", "input-required", "auth-required", "submitted"}, "answer": {"input-required", "auth-required"}}

// words returns a completion by the words that a server knows.
func words(s *cli.Shell, list func(context.Context) []string) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		if err := fromEnv(c); err != nil || s.Server == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if err := applyShared(s, "text", ""); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return list(c.Context()), cobra.ShellCompDirectiveNoFileComp
	}
}

// first returns a completion of the first argument alone.
func first(of cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return of(c, args, to)
	}
}
