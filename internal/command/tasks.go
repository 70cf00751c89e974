package command

import (
	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/tasks"
)

func tasksCommand(s *cli.Shell) *cobra.Command {
	on := &tasks.Commands{Console: &s.Console, Connection: &s.Connection}
	return group("tasks", "Lists, shows, cancels and retries the tasks of a running server",
		"Works with the tasks of all teams and agents of the running server that --server names. If the\n"+
			"server has API keys, --token gives one: it shows its own tasks or, with the permission WATCH,\n"+
			"those of its account.",
		tasksLsCommand(on),
		&cobra.Command{
			Use: "get TASK", Short: "Shows a task, its steps and its open questions", Example: "  team-server tasks get 0198c5e2-…",
			Args: usage(named("TASK")),
			RunE: func(c *cobra.Command, args []string) error { return on.Get(c.Context(), args[0]) },
		},
		&cobra.Command{
			Use: "watch TASK", Short: "Prints what happens in a task, until it has ended", Example: "  team-server tasks watch 0198c5e2-…",
			Long: "Prints what has happened in a task and what happens next, until it has ended; also when the\n" +
				"server is restarted meanwhile. While the task waits for an answer, it goes on, and says how to\n" +
				"answer. Exits with 1 if the task does not succeed.",
			Args: usage(named("TASK")),
			RunE: func(c *cobra.Command, args []string) error { return on.Watch(c.Context(), args[0]) },
		},
		&cobra.Command{
			Use: "cancel TASK...", Short: "Cancels tasks", Example: "  team-server tasks cancel 0198c5e2-…",
			Args: usage(atLeast("TASK")),
			RunE: func(c *cobra.Command, args []string) error { return on.Cancel(c.Context(), args) },
		},
		tasksRetryCommand(on))
}

func tasksLsCommand(on *tasks.Commands) *cobra.Command {
	q := &tasks.Query{}
	c := &cobra.Command{
		Use: "ls", Short: "Lists tasks, the newest first",
		Long: "Lists tasks, the newest first; with --cost, those that have spent most. A task must match all\n" +
			"flags. -o wide shows more columns.",
		Example: "  team-server tasks ls --state failed --since 24h\n  team-server tasks ls --team desk --text \"refund 17\" -o wide\n  team-server tasks ls --cost 0.5",
		Args:    usage(noArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return on.List(c.Context(), q) },
	}
	f := c.Flags()
	f.StringVar(&q.State, "state", "", "submitted, working, input-required, auth-required, completed, failed, canceled or rejected")
	f.StringVar(&q.Team, "team", "", "the team or agent that they were sent to")
	f.StringVar(&q.Text, "text", "", "words of the first 200 characters of their messages, in any order")
	f.StringVar(&q.Since, "since", "", "created since: a day, a time, or a duration before now (24h, 7d)")
	f.StringVar(&q.Until, "until", "", "created before, in the same forms")
	f.StringVar(&q.Cost, "cost", "", "have spent at least this, in USD; the most expensive first")
	f.StringVar(&q.Principal, "principal", "", "those of a principal of the account, which needs the permission WATCH; - means your own")
	f.StringVar(&q.Context, "context", "", "of a conversation")
	f.Int32Var(&q.Size, "limit", 0, "tasks on a page, 1 to 100; 50 if 0")
	f.StringVar(&q.Token, "page-token", "", "token of the page, as printed behind the one before")
	f.BoolVar(&q.All, "all", false, "all pages")
	return c
}

func tasksRetryCommand(on *tasks.Commands) *cobra.Command {
	watch := false
	c := &cobra.Command{
		Use: "retry TASK", Short: "Does the work of a failed or canceled task again, from where it failed",
		Long: "Begins a new task with the message of one that has failed or was canceled. It keeps the\n" +
			"results of the steps that had succeeded, and runs the others again, with the definitions of\n" +
			"the old task. Prints the id of the new task.",
		Example: "  team-server tasks retry 0198c5e2-… --watch",
		Args:    usage(named("TASK")),
		RunE:    func(c *cobra.Command, args []string) error { return on.Retry(c.Context(), args[0], watch) },
	}
	c.Flags().BoolVar(&watch, "watch", false, "print what happens in the new task, until it has ended")
	return c
}

func traceCommand(s *cli.Shell) *cobra.Command {
	on := &tasks.Commands{Console: &s.Console, Connection: &s.Connection}
	return &cobra.Command{
		Use: "trace TASK", Short: "Shows what a task has done: a tree of its steps with a timeline",
		Long: "Prints each step of a task of the running server that --server names: when it began, how long it\n" +
			"took, how it ended, what it cost, and why it was decided or has failed. -o json prints all that is\n" +
			"known, with every message.",
		Example: "  team-server trace 0198c5e2-…",
		Args:    usage(named("TASK")),
		RunE:    func(c *cobra.Command, args []string) error { return on.Trace(c.Context(), args[0]) },
	}
}

func logsCommand(s *cli.Shell) *cobra.Command {
	on := &tasks.Commands{Console: &s.Console, Connection: &s.Connection}
	follow := false
	c := &cobra.Command{
		Use: "logs [TASK]", Short: "Prints what has happened in a task",
		Long: "Prints what has happened in a task of the running server that --server names; without TASK, in\n" +
			"the newest one. With -f, also what happens next, until the task has ended.",
		Example: "  team-server logs -f",
		Args:    usage(atMostOne("TASK")),
		RunE: func(c *cobra.Command, args []string) error {
			return on.Logs(c.Context(), append(args, "")[0], follow)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "print what happens next, too")
	return c
}
