package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/app"
)

// listenFlags are where a server listens.
type listenFlags struct{ http, grpc string }

func (f *listenFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.http, "http", "", "address of REST, JSON-RPC and cards; default "+app.DefaultHTTP)
	c.Flags().StringVar(&f.grpc, "grpc", "", "address of gRPC, or off; default "+app.DefaultGRPC)
}

const storeHelp = "where tasks are kept: memory:, sqlite:FILE or postgres://USER@HOST/DATABASE"

func devCommand(s *app.Shell) *cobra.Command {
	f, listen := app.DevFlags{}, &listenFlags{}
	c := &cobra.Command{
		Use:   "dev [FILE|FOLDER]",
		Short: "Serves teams on this machine and reloads them when their file changes",
		Long: "Serves the teams of a file, or of the team.yaml in a folder; without one a demo\n" +
			"that needs no key. Loopback only, no authentication. Tasks are kept in memory\n" +
			"unless --db or --store names a place that lasts. Variables may stand in .env.\n" +
			"In place of a default port that is taken it takes the next free one; an address\n" +
			"that is named must be free.",
		Args: usage(atMostOne("FILE or FOLDER")),
		RunE: func(c *cobra.Command, args []string) error {
			path := ""
			if len(args) > 0 {
				path = args[0]
			}
			f.HTTP, f.GRPC = listen.http, listen.grpc
			return s.Dev(c.Context(), path, f)
		},
	}
	c.Flags().StringVar(&f.Store, "store", "", storeHelp+"; default memory:")
	c.Flags().StringVar(&f.DB, "db", "", "file to keep tasks in, short for --store sqlite:FILE")
	listen.add(c)
	return c
}

func serveCommand(s *app.Shell) *cobra.Command {
	f, listen := app.ServeConfig{}, &listenFlags{}
	var file string
	c := &cobra.Command{
		Use:   "serve -c FILE",
		Short: "Serves the teams of a file",
		Long: "Serves the teams of a file. Refuses to listen beyond loopback without API keys\n" +
			"(server.auth), and to take another port than the one named. Tasks are kept where\n" +
			"--store or server.store says; several servers on one postgres:// store share the\n" +
			"work. A password is better in TEAM_STORE or in the file, by ${NAME}, than in a flag.",
		Args: usage(byFlag("-c")),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return app.UsageError{Err: errors.New("serve needs a file: team-server serve -c team.yaml")}
			}
			f.HTTP, f.GRPC = listen.http, listen.grpc
			return s.Serve(c.Context(), file, f)
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "the file, or a folder with a team.yaml")
	c.Flags().StringVar(&f.Store, "store", "", storeHelp+"; default: server.store of the file, else memory:")
	c.Flags().DurationVar(&f.Lease, "lease", 0, "how long a replica that is not heard of keeps its runs; default 15s")
	c.Flags().StringVar(&f.Replica, "replica", "", "name of this process in the records of runs")
	for _, name := range []string{"lease", "replica"} {
		c.Flags().Lookup(name).Hidden = true
	}
	listen.add(c)
	return c
}

func migrateCommand(s *app.Shell) *cobra.Command {
	var from, to string
	c := &cobra.Command{
		Use:   "migrate --from URL --to URL",
		Short: "Copies all tasks from one store to another, empty one",
		Long: "Copies everything that a store holds to another one, which must be empty. Stop\n" +
			"the servers that use it first; then start them with the other store: what has not\n" +
			"ended goes on there. A SQLite file is not changed: a copy of it is read, in the folder\n" +
			"for temporary files (TMPDIR), which must have room for it.",
		Example: "  team-server migrate --from sqlite:team.db --to postgres://ann@db.example/team",
		Args:    usage(nothing),
		RunE:    func(c *cobra.Command, _ []string) error { return s.Migrate(c.Context(), from, to) },
	}
	c.Flags().StringVar(&from, "from", "", "the store to copy: sqlite:FILE or postgres://USER@HOST/DATABASE")
	c.Flags().StringVar(&to, "to", "", "the store to copy to")
	return c
}

func validateCommand(s *app.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "validate [FILE|FOLDER...]",
		Short: "Finds everything that is wrong with configuration files",
		Long: "Checks syntax, keys, values, references and expressions of each file, or of the\n" +
			"files in a folder, and shows all faults with their place. Default: team.yaml.\n" +
			"Exit code 3 when there are faults.",
		RunE: func(_ *cobra.Command, args []string) error { return s.Validate(args) },
	}
}

func runCommand(s *app.Shell) *cobra.Command {
	f := &app.Run{}
	c := &cobra.Command{
		Use:   "run TEAM TEXT",
		Short: "Runs one task of a team or agent and shows how it goes",
		Long: "Gives a team or agent a message and tells who works and why, until it is done.\n" +
			"The answer goes to standard output, the rest to standard error. Without\n" +
			"--server a server is started in process, from --file, ./team.yaml or the demo.\n" +
			"Exit code 1 when the run fails or waits for an answer.",
		Example: "  team-server run newsroom \"Write about tides\"\n" +
			"  team-server run --file examples/workflow release \"Version 2\" --answer yes",
		Args: usage(named("TEAM", "TEXT")),
		RunE: func(c *cobra.Command, args []string) error {
			if f.File != "" && s.Server != "" {
				return app.UsageError{Err: errors.New("--file starts a server in process, --server names one that runs; " +
					"give one of the two (the variable TEAM_SERVER counts as --server)")}
			}
			return s.Run(c.Context(), args[0], args[1], f)
		},
	}
	c.Flags().StringVarP(&f.File, "file", "f", "", "configuration of the server in process")
	c.Flags().Var(id{&f.Context}, "context", "id of the conversation to go on with")
	c.Flags().Var(id{&f.Task}, "task", "id of the task to answer")
	c.Flags().StringArrayVar(&f.Answers, "answer", nil, "answer to a question of the run; may be repeated")
	return c
}

const verifyHelp = "file with public keys to trust: JWK set, JWK or PEM; repeatable"

func cardCommand(s *app.Shell) *cobra.Command {
	f := &app.CallFlags{}
	c := &cobra.Command{
		Use:   "card TEAM|URL",
		Short: "Shows the card of a team or of any A2A agent",
		Long: "Shows the card of the agent at URL, or of a team of the server given with\n" +
			"--server; without a server, of a team in ./team.yaml or of the demo. With\n" +
			"--verify it shows what one of the keys in FILE has signed, and fails if none has.",
		Example: "  team-server card newsroom\n" +
			"  team-server card http://127.0.0.1:8080\n" +
			"  team-server card https://legal.example --verify legal-keys.json",
		Args: usage(named("TEAM|URL")),
		RunE: func(c *cobra.Command, args []string) error { return s.Card(c.Context(), args[0], f) },
	}
	c.Flags().StringArrayVar(&f.Trusted, "verify", nil, verifyHelp)
	return c
}

func versionCommand(s *app.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Prints the version",
		Args:  usage(nothing),
		RunE:  func(*cobra.Command, []string) error { return s.Version() },
	}
}
