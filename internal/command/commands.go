package command

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentteams/team-server/api"
	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/call"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/cli/stores"
	"github.com/agentteams/team-server/internal/cli/tasks"
	"github.com/agentteams/team-server/internal/scaffold"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/settings"
)

// listenFlags holds the addresses to listen on.
type listenFlags struct{ http, grpc string }

func (f *listenFlags) add(c *cobra.Command) {
	defaults := settings.WithDefaults(nil)
	c.Flags().StringVar(&f.http, "http", "", "address of REST, JSON-RPC and cards; default "+defaults.GetHttp())
	c.Flags().StringVar(&f.grpc, "grpc", "", "address of gRPC, or off; default "+defaults.GetGrpc())
}

// role is the value of the flag for the role of a server.
type role struct{ of *serve.Role }

func (r role) Type() string { return "role" }

func (r role) String() string {
	if r.of == nil {
		return ""
	}
	return string(*r.of)
}

func (r role) Set(text string) error {
	if !slices.Contains(serve.Roles, serve.Role(text)) {
		return errors.New("unknown role")
	}
	*r.of = serve.Role(text)
	return nil
}

// roleFlag adds the flag for the role of a server.
func roleFlag(f *pflag.FlagSet, to *serve.Role) {
	f.Var(role{to}, "role", "what the server does: all, front (accepts calls) or worker (drives tasks); default all")
}

const storeHelp = "URL of the task store: memory:, sqlite:FILE or postgres://USER@HOST/DATABASE"

func devCommand(s *cli.Shell) *cobra.Command {
	f, listen, file := cli.DevFlags{}, &listenFlags{}, ""
	c := &cobra.Command{
		Use:   "dev [FILE|FOLDER]",
		Short: "Serves teams on this machine and reloads them when their file changes",
		Long: "Serves the teams of a file, or of the team.yaml in a folder; without an argument, of\n" +
			"./team.yaml, or without that file a demo that needs no API key. Listens on loopback\n" +
			"only, without authentication. Tasks are stored in memory unless --db or --store is\n" +
			"given. Variables may be set in .env. If a default port is in use, the next free one\n" +
			"is used; an address given with --http or --grpc must be free.",
		Args: usage(oneFile(&file)),
		RunE: func(c *cobra.Command, _ []string) error {
			f.HTTP, f.GRPC = listen.http, listen.grpc
			return s.Dev(c.Context(), file, f)
		},
	}
	fileFlags(c.Flags(), &file, "file", fileHelp)
	c.Flags().StringVar(&f.Store, "store", "", storeHelp+"; default memory:")
	c.Flags().StringVar(&f.DB, "db", "", "SQLite file for tasks, short for --store sqlite:FILE")
	listen.add(c)
	return c
}

func serveCommand(s *cli.Shell) *cobra.Command {
	f, listen := serve.Config{}, &listenFlags{}
	var file string
	var watch bool
	c := &cobra.Command{
		Use:   "serve -c FILE",
		Short: "Serves the teams of a file",
		Long: "Serves the teams of a file. Listens beyond loopback only with API keys (server.auth),\n" +
			"and never on other ports than those given. Tasks are stored where --store or\n" +
			"server.store says; several servers with the same postgres:// store share the work. With\n" +
			"--role front a server accepts calls and has others drive the tasks; with --role worker it\n" +
			"drives tasks, and listens for metrics and health checks (server.metrics) only.\n" +
			"Pass a password in TEAM_STORE, or as ${NAME} in the file, rather than in a flag.\n" +
			"SIGHUP reloads the file, with all files that it names. A file with faults is not\n" +
			"applied; the log has the faults.",
		Args: usage(oneFile(&file)),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return console.Usagef("serve needs a file: team-server serve -c team.yaml")
			}
			f.HTTP, f.GRPC = listen.http, listen.grpc
			return s.Serve(c.Context(), file, watch, f)
		},
	}
	fileFlags(c.Flags(), &file, "config", fileHelp)
	c.Flags().BoolVar(&watch, "watch", false, "also reload when a file that was read has changed")
	c.Flags().StringVar(&f.Store, "store", "", storeHelp+"; default: server.store of the file, else memory:")
	c.Flags().DurationVar(&f.Lease, "lease", 0, "time after which a replica that stops responding loses its runs; default 15s")
	c.Flags().StringVar(&f.Replica, "replica", "", "name of this process, recorded with the runs that it executes")
	roleFlag(c.Flags(), &f.Role)
	for _, name := range []string{"lease", "replica"} {
		c.Flags().Lookup(name).Hidden = true
	}
	listen.add(c)
	return c
}

func migrateCommand(s *cli.Shell) *cobra.Command {
	on := &stores.Commands{Console: &s.Console}
	var from, to string
	c := &cobra.Command{
		Use:   "migrate --from URL --to URL",
		Short: "Copies all tasks from one store to another, empty one",
		Long: "Copies the content of a store to another one, which must be empty. Stop the servers\n" +
			"that use it first, and start them with the new store afterwards: unfinished tasks\n" +
			"continue there.",
		Example: "  team-server migrate --from sqlite:team.db --to postgres://ann@db.example/team",
		Args:    usage(noArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return on.Migrate(c.Context(), from, to) },
	}
	c.Flags().StringVar(&from, "from", "", "the store to copy: sqlite:FILE or postgres://USER@HOST/DATABASE")
	c.Flags().StringVar(&to, "to", "", "the store to copy to")
	return c
}

const storedHelp = "the store: sqlite:FILE or postgres://USER@HOST/DATABASE"

func backupCommand(s *cli.Shell) *cobra.Command {
	on := &stores.Commands{Console: &s.Console}
	var url string
	c := &cobra.Command{
		Use:   "backup FILE --store sqlite:FILE",
		Short: "Writes a backup of a SQLite store to a file, while a server uses it",
		Long: "Writes a copy of a SQLite store, as it is at one moment, to FILE, and checks the copy. A\n" +
			"server may use the store meanwhile. FILE must not exist; it appears when it is complete\n" +
			"and has mode 0600. Secrets in it stay encrypted: keep the keys of server.encryption\n" +
			"elsewhere. To restore it, copy it to a place where there is no store, and start a server\n" +
			"with it. Make backups of PostgreSQL with pg_dump.",
		Example: "  team-server backup team.backup --store sqlite:team.db",
		Args:    usage(named("FILE")),
		RunE:    func(c *cobra.Command, args []string) error { return on.Backup(c.Context(), url, args[0]) },
	}
	c.Flags().StringVar(&url, "store", "", "the store: sqlite:FILE")
	return c
}

func engineCommand(s *cli.Shell) *cobra.Command {
	on := &stores.Commands{Console: &s.Console}
	var url, to string
	move := &cobra.Command{
		Use:   "move --to store|temporal --store URL",
		Short: "Has another engine drive the runs of a store",
		Long: "Has another engine drive the runs of a PostgreSQL store: the servers themselves (store),\n" +
			"or servers of the program team-server-temporal with server.engine.temporal (temporal). A\n" +
			"store has one engine, and servers of the other one refuse to start. Stop all servers that\n" +
			"use the store first. Runs that have not ended continue with the other engine.",
		Example: "  team-server engine move --to temporal --store postgres://ann@db.example/team",
		Args:    usage(noArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return on.MoveEngine(c.Context(), url, to) },
	}
	move.Flags().StringVar(&to, "to", "", "the engine: store or temporal")
	move.Flags().StringVar(&url, "store", "", "the store: postgres://USER@HOST/DATABASE")
	file := ""
	register := &cobra.Command{
		Use:   "register [FILE]",
		Short: "Registers the search attributes of tasks with Temporal",
		Long: "Registers the search attributes TeamAgent, TeamAccount, TeamContext and TeamState in the\n" +
			"namespace of server.engine.temporal, so that Temporal finds workflows by them. Does nothing\n" +
			"for those that are registered. Servers set them within a minute, for workflows that begin\n" +
			"then. Default: team.yaml.",
		Example: "  team-server-temporal engine register team.yaml",
		Args:    usage(oneFile(&file)),
		RunE: func(c *cobra.Command, _ []string) error {
			return s.RegisterAttributes(c.Context(), cmp.Or(file, "team.yaml"))
		},
	}
	fileFlags(register.Flags(), &file, "file", fileHelp)
	return group("engine", "Says what drives the runs of a store", "Says what drives the runs of a store: the servers themselves, or Temporal.", move, register)
}

func storeCommand(s *cli.Shell) *cobra.Command {
	on := &stores.Commands{Console: &s.Console}
	var url, key, file, inFile string
	forget := &cobra.Command{
		Use:   "forget-secrets --store URL --key ID",
		Short: "Deletes what a lost key of server.encryption has encrypted",
		Long: "Deletes from a store what the key of server.encryption with the given id has encrypted:\n" +
			"webhooks, with their tokens and credentials. Callers must register them again. Page\n" +
			"tokens that callers hold become invalid. Use it if the key is lost for good, so that\n" +
			"servers refuse to start without it. Stop the servers that use the store first.",
		Example: "  team-server store forget-secrets --store sqlite:team.db --key 2026-11",
		Args:    usage(noArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return on.ForgetSecrets(c.Context(), url, key) },
	}
	forget.Flags().StringVar(&url, "store", "", storedHelp)
	forget.Flags().StringVar(&key, "key", "", "id of the lost key")
	reencrypt := &cobra.Command{
		Use:   "reencrypt [FILE]",
		Short: "Encrypts all secrets of a store again under the first key",
		Long: "Encrypts all secrets in the store of a configuration file again under the first key of its\n" +
			"server.encryption, so that the other keys can be removed from the file. Servers may use\n" +
			"a PostgreSQL store meanwhile, if all of them have that key as their first one. Stop the\n" +
			"server of a SQLite store first.",
		Example: "  team-server store reencrypt team.yaml",
		Args:    usage(oneFile(&file)),
		RunE: func(c *cobra.Command, _ []string) error {
			return on.Reencrypt(c.Context(), cmp.Or(file, "team.yaml"), inFile)
		},
	}
	fileFlags(reencrypt.Flags(), &file, "file", fileHelp)
	reencrypt.Flags().StringVar(&inFile, "store", "", storedHelp+"; that of the file if not given")
	return group("store", "Encrypts the secrets of a store again, and deletes what it can no longer read",
		"Encrypts the secrets of a store again, and deletes what it can no longer read.", reencrypt, forget)
}

func validateCommand(s *cli.Shell) *cobra.Command {
	strict, file := false, ""
	c := &cobra.Command{
		Use:   "validate [FILE|FOLDER...]",
		Short: "Checks configuration files and prints all faults",
		Long: "Checks syntax, keys, values, references and expressions of each file, or of the files\n" +
			"in a folder, and prints all faults with their positions. Default: team.yaml. Exits\n" +
			"with 3 if there are faults. Prints warnings about what is valid and probably not meant,\n" +
			"and how many turns of models and calls of members a run of each team has at worst.",
		RunE: func(_ *cobra.Command, args []string) error {
			if file != "" {
				args = append(args, file)
			}
			return s.Validate(args, strict)
		},
	}
	fileFlags(c.Flags(), &file, "file", fileHelp)
	c.Flags().BoolVar(&strict, "strict", false, "exit with 3 if there are warnings")
	return c
}

func configCommand(s *cli.Shell) *cobra.Command {
	file := ""
	view := &cobra.Command{
		Use: "view [FILE|FOLDER]", Short: "Prints a configuration file as it is read, without secrets",
		Long: "Prints a configuration file with the values of its variables and with short forms written out.\n" +
			"In place of each secret there is *** and its path. Default: team.yaml, or the demo. Like run and\n" +
			"dev, it reads .env.",
		Example: "  team-server config view team.yaml",
		Args:    usage(oneFile(&file)),
		RunE:    func(*cobra.Command, []string) error { return s.ViewConfig(file) },
	}
	fileFlags(view.Flags(), &file, "file", fileHelp)
	return group("config", "Shows a configuration file as it is read", "Works with configuration files; see also validate and schema.", view)
}

func doctorCommand(s *cli.Shell) *cobra.Command {
	f, listen, file := cli.Doctor{}, &listenFlags{}, ""
	c := &cobra.Command{
		Use:   "doctor [FILE|FOLDER]",
		Short: "Checks whether a server can run with a file",
		Long: "Checks a file as validate does, and then what a server with it needs: the store, free\n" +
			"addresses, certificates, keys, issuers of tokens, models, remote agents, tools, and the\n" +
			"collector of OpenTelemetry. Prints one line for each check, and what to do. Changes\n" +
			"nothing, may run beside the server, and makes no call that costs tokens. Programs of MCP\n" +
			"servers are started and stopped. Default: team.yaml. As with serve, .env is not read.\n" +
			"Exits with 1 if a check failed, or with --strict if there are warnings, and with 3 if the\n" +
			"file has faults.",
		Example: "  team-server doctor team.yaml\n" +
			"  team-server doctor --strict -o json team.yaml",
		Args: usage(oneFile(&file)),
		RunE: func(c *cobra.Command, _ []string) error {
			f.HTTP, f.GRPC = listen.http, listen.grpc
			return s.Doctor(c.Context(), cmp.Or(file, "team.yaml"), f)
		},
	}
	fileFlags(c.Flags(), &file, "file", fileHelp)
	c.Flags().StringVar(&f.Store, "store", "", storeHelp+"; default: server.store of the file, else memory:")
	c.Flags().BoolVar(&f.Strict, "strict", false, "exit with 1 if there are warnings")
	roleFlag(c.Flags(), &f.Role)
	c.Flags().DurationVar(&f.Timeout, "timeout", cli.DoctorTimeout, "time limit of each check")
	listen.add(c)
	return c
}

func runCommand(s *cli.Shell) *cobra.Command {
	f := &cli.Run{}
	c := &cobra.Command{
		Use:   "run TEAM TEXT",
		Short: "Runs a task of a team or agent and prints its progress",
		Long: "Sends a message to a team or agent and prints which agent is working and why, until\n" +
			"the task ends. The answer goes to standard output, the rest to standard error.\n" +
			"Without --server, an in-process server is started from --file, ./team.yaml or the\n" +
			"demo. On a terminal, questions of the run are asked there. With - as TEXT, the text is\n" +
			"read from standard input. Exits with 1 if the run fails or waits for an answer.",
		Example: "  team-server run newsroom \"Write about tides\"\n" +
			"  team-server run --file examples/workflow release \"Version 2\" --answer yes",
		Args: usage(named("TEAM", "TEXT")),
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneServer(s, f.File); err != nil {
				return err
			}
			return s.Run(c.Context(), args[0], args[1], f)
		},
	}
	fileFlags(c.Flags(), &f.File, "file", "configuration of the in-process server")
	c.Flags().Var(id{&f.Context}, "context", "id of the conversation to continue")
	c.Flags().Var(id{&f.Task}, "task", "id of the task to answer")
	c.Flags().StringArrayVar(&f.Answers, "answer", nil, "answer to a question of the run; repeatable")
	c.Flags().StringArrayVar(&f.Files, "attach", nil, "file to send with the text; repeatable")
	c.Flags().StringArrayVar(&f.Inputs, "input", nil, "NAME=VALUE that the team wants by name; repeatable")
	return c
}

func chatCommand(s *cli.Shell) *cobra.Command {
	f := &cli.Run{}
	c := &cobra.Command{
		Use:   "chat TEAM",
		Short: "Has a conversation with a team or agent",
		Long: "Sends each line of the standard input to a team or agent, in one conversation, and prints\n" +
			"its progress and answers as run does. When a run asks a question, the next line answers it.\n" +
			"/quit or the end of the input ends the chat. Without --server, an in-process server is\n" +
			"started from --file, ./team.yaml or the demo.",
		Example: "  team-server chat newsroom\n" +
			"  team-server --server http://127.0.0.1:8080 chat newsroom --context CONTEXT",
		Args: usage(named("TEAM")),
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneServer(s, f.File); err != nil {
				return err
			}
			return s.Chat(c.Context(), args[0], f)
		},
	}
	fileFlags(c.Flags(), &f.File, "file", "configuration of the in-process server")
	c.Flags().Var(id{&f.Context}, "context", "id of the conversation to continue")
	c.Flags().StringArrayVar(&f.Inputs, "input", nil, "NAME=VALUE that the team wants by name, with each message; repeatable")
	return c
}

// oneServer reports the file of an in-process server beside the address of a running one.
func oneServer(s *cli.Shell, file string) error {
	if file != "" && s.Server != "" {
		return console.UsageError{Err: errors.New("--file starts an in-process server, --server names a running one; " +
			"set only one of them (the variable TEAM_SERVER counts as --server)")}
	}
	return nil
}

func initCommand(s *cli.Shell) *cobra.Command {
	folder, long := "", "Writes a configuration, the script of its model, tests, the schemas for editors and\n"+
		".env.example into a folder, and says what to do next. Changes no file that exists.\n\nTemplates, the first one by default:\n"
	for _, t := range scaffold.Templates() {
		long += fmt.Sprintf("  %-12s %s\n", t.Name, t.About)
	}
	c := &cobra.Command{
		Use: "init [TEMPLATE]", Short: "Writes the files with which a team of your own begins", Long: strings.TrimSuffix(long, "\n"),
		Example: "  team-server init\n  team-server init workflow --folder release",
		Args:    usage(atMostOne("TEMPLATE")),
		RunE:    func(_ *cobra.Command, args []string) error { return s.Init(strings.Join(args, ""), folder) },
	}
	c.Flags().StringVar(&folder, "folder", "", "folder to write into; default: the name of the template")
	return c
}

func protosCommand(s *cli.Shell) *cobra.Command {
	replace := false
	c := &cobra.Command{
		Use: "protos DIR", Short: "Writes the protos for an agent in another language",
		Long: "Writes the protos of the Agent service and of A2A into a folder. They compile alone, with\n" +
			"protoc, buf, grpc_tools or @grpc/proto-loader, for an agent in any language with gRPC.",
		Example: "  team-server protos protos",
		Args:    usage(named("DIR")),
		RunE:    func(_ *cobra.Command, args []string) error { return s.Protos(args[0], replace) },
	}
	c.Flags().BoolVar(&replace, "force", false, "replace files that have other content")
	return c
}

func questionsCommand(s *cli.Shell) *cobra.Command {
	on := &tasks.Commands{Console: &s.Console, Connection: &s.Connection}
	question := ""
	answer := &cobra.Command{
		Use: "answer TASK TEXT", Short: "Answers a question of a task", Args: usage(named("TASK", "TEXT")),
		Example: "  team-server questions answer 0198c5e2-… yes",
		RunE: func(c *cobra.Command, args []string) error {
			return on.AnswerQuestion(c.Context(), args[0], question, args[1])
		},
	}
	answer.Flags().StringVar(&question, "question", "", "id of the question, if the task asks several")
	return group("questions", "Lists and answers the questions of running tasks",
		"Lists the open questions of tasks of the running server that --server names: those of your\n"+
			"own tasks, and those for a role that you have. Answers them.",
		&cobra.Command{
			Use: "ls [TEAM]", Short: "Lists the open questions that you may answer", Args: usage(atMostOne("TEAM")),
			RunE: func(c *cobra.Command, args []string) error {
				return on.ListQuestions(c.Context(), strings.Join(args, ""))
			},
		}, answer)
}

const verifyHelp = "file with public keys to trust: JWK set, JWK or PEM; repeatable"

func cardCommand(s *cli.Shell) *cobra.Command {
	f := &call.Flags{}
	c := &cobra.Command{
		Use:   "card TEAM|URL",
		Short: "Shows the card of a team or of any A2A agent",
		Long: "Prints the card of the agent at URL, or of a team on the server that --server names;\n" +
			"without a server, of a team in ./team.yaml or of the demo. With --verify, prints\n" +
			"only what a key in FILE has signed, and fails if there is no valid signature.",
		Example: "  team-server card newsroom\n" +
			"  team-server card http://127.0.0.1:8080\n" +
			"  team-server card https://legal.example --verify legal-keys.json",
		Args: usage(named("TEAM|URL")),
		RunE: func(c *cobra.Command, args []string) error { return s.Card(c.Context(), args[0], f) },
	}
	c.Flags().StringArrayVar(&f.Trusted, "verify", nil, verifyHelp)
	return c
}

func schemaCommand(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "schema [team|test]",
		Short: "Prints the JSON Schema of team.yaml, or of test files, for editors",
		Long: "Prints the JSON Schema of the configuration file, or with test that of test files, with\n" +
			"which editors complete and check them: save it beside the file, and write\n" +
			"# yaml-language-server: $schema=team.schema.json as the first line of the file.",
		Example: "  team-server schema > team.schema.json",
		Args:    usage(atMostOne("team or test")),
		RunE: func(_ *cobra.Command, args []string) error {
			schemas := map[string][]byte{"": api.TeamSchema, "team": api.TeamSchema, "test": api.TestSchema}
			schema, known := schemas[strings.Join(args, "")]
			if !known {
				return console.UsageError{Err: fmt.Errorf("unknown schema %q; known schemas: team, test", args[0])}
			}
			_, err := s.Out.Write(schema)
			return err
		},
	}
}

func versionCommand(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Prints the version",
		Args:  usage(noArgs),
		RunE:  func(*cobra.Command, []string) error { return s.Version() },
	}
}

func mcpCommand(s *cli.Shell) *cobra.Command {
	file := ""
	c := &cobra.Command{
		Use:   "mcp [FILE]",
		Short: "Serves agents and teams as tools of an MCP server on standard input and output",
		Long: "Serves the agents and teams of FILE, ./team.yaml or the demo, or those of --server, as\n" +
			"tools to the MCP client that has started this command. Nothing but messages of MCP is\n" +
			"written to standard output.",
		Args: usage(oneFile(&file)),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneServer(s, file); err != nil {
				return err
			}
			return s.MCP(c.Context(), file)
		},
	}
	fileFlags(c.Flags(), &file, "file", fileHelp)
	return c
}
