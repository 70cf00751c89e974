package command

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/config/source"
)

func newRoot(s *cli.Shell) *cobra.Command {
	var output, level string
	var version bool
	root := &cobra.Command{
		Use:           "team-server",
		Short:         "Serves teams of AI agents over A2A and calls A2A servers",
		SilenceErrors: true, SilenceUsage: true,
		Args: usage(noArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if version {
				return s.Version()
			}
			return c.Help()
		},
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if err := fromEnv(c); err != nil {
				return err
			}
			warnUnread(c, s.Talk)
			return applyShared(s, output, level)
		},
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return console.UsageError{Err: unknownFlag(c, wrongFlag(err)), Command: c.CommandPath()}
	})
	root.Flags().BoolVar(&version, "version", false, "print the version")
	f := root.PersistentFlags()
	f.StringVar(&s.Server, "server", "", "address of a running team-server, for example http://127.0.0.1:8080")
	f.StringVar(&s.Token, "token", "", "bearer token for the server")
	f.StringVar(&s.CA, "ca", "", "file with certificate authorities to trust, in PEM")
	f.StringVar(&s.ClientCert, "client-cert", "", "file with the certificate to show to the server, in PEM")
	f.StringVar(&s.ClientKey, "client-key", "", "file with the key of that certificate")
	f.StringVarP(&output, "output", "o", "text", "text, wide or json")
	f.StringVar(&level, "log-level", "", "debug, info, warn or error")
	root.AddCommand(initCommand(s), devCommand(s), serveCommand(s), validateCommand(s), configCommand(s), doctorCommand(s), testCommand(s), runCommand(s), mcpCommand(s), chatCommand(s), tasksCommand(s), traceCommand(s), logsCommand(s), toolsCommand(s), modelsCommand(s), questionsCommand(s), callCommand(s), cardCommand(s),
		teamsCommand(s), collabCommand(s), agentsCommand(s), accountsCommand(s), keysCommand(s), auditCommand(s), costsCommand(s), haltCommand(s), resumeCommand(s), migrateCommand(s), backupCommand(s), storeCommand(s), engineCommand(s), schemaCommand(s), protosCommand(s), versionCommand(s), manCommand())
	root.InitDefaultCompletionCmd("completion") // added early so that its argument errors can be replaced
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = usage(noArgs), func(c *cobra.Command, _ []string) error { return c.Help() }
			for _, shell := range c.Commands() {
				shell.Args = usage(noArgs)
			}
		}
	}
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = usage(func(_ *cobra.Command, args []string) error {
				if found, _, err := root.Find(args); len(args) > 0 && (err != nil || found == root) {
					return errors.New(unknownCommand(root, args[0]))
				}
				return nil
			})
		}
	}
	nameVariables(root)
	completeNames(root, s)
	return root
}

// nameVariables adds to the help of the flags of a command, and of the commands below it, the variables that set them.
func nameVariables(c *cobra.Command) {
	add := func(f *pflag.Flag) {
		if name := variable(f); name != "" {
			f.Usage += " (" + name + ")"
		}
	}
	c.Flags().VisitAll(add)
	c.PersistentFlags().VisitAll(add)
	for _, below := range c.Commands() {
		nameVariables(below)
	}
}

// usage turns the errors of an argument check into usage errors.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return console.UsageError{Err: err, Command: c.CommandPath()}
		}
		return nil
	}
}

// noArgs accepts no arguments. For a command with subcommands, an argument is reported as an
// unknown subcommand.
func noArgs(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case !c.HasParent():
		return errors.New(unknownCommand(c, args[0]))
	case c.HasSubCommands():
		return fmt.Errorf("%s %s: expected one of %s", nameOf(c), args[0], commandsOf(c))
	}
	return fmt.Errorf("%s takes no arguments, not %q", nameOf(c), args[0])
}

// unknownCommand says that there is no command of a name, and which may be meant.
func unknownCommand(root *cobra.Command, name string) string {
	text := fmt.Sprintf("unknown command %q", name)
	var known []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	switch hint := source.Suggest(name, known); {
	case meant[name] != "":
		return text + "; did you mean " + strconv.Quote(meant[name]) + "?"
	case hint != "":
		return text + "; " + hint
	}
	return text
}

// meant maps words that people try as commands to the commands for it.
var meant = map[string]string{
	"ask": "run", "exec": "run", "send": "call", "task": "tasks", "ps": "tasks ls", "jobs": "tasks ls", "get": "tasks get", "cancel": "tasks cancel", "retry": "tasks retry", "watch": "tasks watch", "list": "teams ls", "ls": "teams ls", "start": "serve", "up": "serve",
	"server": "serve", "check": "validate", "lint": "validate", "help-me": "doctor", "status": "doctor", "demo": "dev", "stop": "halt", "cost": "costs",
}

// fileHelp describes the flag of the file of most commands.
const fileHelp = "configuration file, or a folder with a team.yaml"

// fileFlags adds the flags that name the file of a command: -f, --file, -c and --config, which mean the same in all of
// them. shown is the name of the one that the help shows.
func fileFlags(f *pflag.FlagSet, file *string, shown, help string) {
	for name, short := range map[string]string{"file": "f", "config": "c"} {
		f.StringVarP(file, name, short, "", help)
		f.Lookup(name).Hidden = name != shown
	}
}

// oneFile accepts the file of a command as its argument, as by the flags, and sets it.
func oneFile(file *string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		names := args
		if *file != "" {
			names = append([]string{*file}, args...)
		}
		if err := atMostOne("FILE or FOLDER")(c, names); err != nil || len(args) == 0 {
			return err
		}
		*file = args[0]
		return nil
	}
}

// atMostOne accepts one argument or none; what names it in errors.
func atMostOne(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < 2 {
			return nil
		}
		return fmt.Errorf("%s takes one %s, not also %q", nameOf(c), what, args[1])
	}
}

// named requires an argument for each name. Only TEXT may be empty.
func named(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		example, _, _ := strings.Cut(strings.TrimSpace(c.Example), "\n")
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s needs %s, for example: %s", nameOf(c), names[len(args)], example)
		case len(args) > len(names):
			return fmt.Errorf("%s takes %s only, not also %q; quote a text of several words, for example: %s",
				nameOf(c), strings.Join(names, " and "), args[len(names)], example)
		}
		for i, name := range names {
			if args[i] == "" && name != "TEXT" {
				return fmt.Errorf("%s: %s is empty, for example: %s", nameOf(c), name, example)
			}
		}
		return nil
	}
}

// atLeast requires one or more arguments.
func atLeast(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 || slices.Contains(args, "") {
			return named(name)(c, args[:min(len(args), 1)])
		}
		return nil
	}
}

// nameOf returns the name of a command below team-server.
func nameOf(c *cobra.Command) string {
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
}

// kinds describes the valid values of flags, by flag type.
var kinds = map[string]string{
	"bool": "true or false", "duration": "a duration such as 30s", "int": "a whole number", "int64": "a whole number", "number": "a whole number", "id": "an id", "role": "all, front or worker",
}

// wrongFlag rewrites the error for an invalid flag value so that it names what was expected.
func wrongFlag(err error) error {
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) || kinds[wrong.GetFlag().Value.Type()] == "" {
		return err
	}
	value := cmp.Or(wrong.GetValue(), `""`)
	return fmt.Errorf("--%s %s: expected %s", wrong.GetFlag().Name, value, kinds[wrong.GetFlag().Value.Type()])
}

// unknownFlag adds to the error for a flag that a command does not have the flag that was probably meant.
func unknownFlag(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name := unknown.GetSpecifiedName()
	if other := meantFlags[name]; other != "" && c.Flags().Lookup(other) != nil {
		return fmt.Errorf("%w; did you mean --%s?", err, other)
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if near := source.Nearest(name, known); near != "" && len(name) > 1 {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return err
}

// meantFlags maps words that people try as flags to the flags for it.
var meantFlags = map[string]string{
	"v": "version", "c": "config", "f": "file", "config": "file", "file": "config", "url": "server", "host": "server", "address": "http", "listen": "http", "port": "http", "api-key": "token", "key": "token", "format": "output",
	"json": "output", "db": "store", "verbose": "log-level", "debug": "log-level", "param": "input", "var": "input", "arg": "input", "set": "input",
}

// variableOr returns the variable that has set a flag to a value, or what the flag is called.
func variableOr(flag, name, value string) string {
	if os.Getenv(variableOf(flag)) == value {
		return variableOf(flag)
	}
	return name
}

// applyShared applies the flags that all commands share.
func applyShared(s *cli.Shell, output, level string) error {
	if _, _, err := net.SplitHostPort(s.Server); err == nil && !strings.Contains(s.Server, "/") {
		s.Server = "http://" + s.Server
	}
	switch output {
	case "json":
		s.JSON = true
	case "text", "wide":
		s.JSON, s.Wide = false, output == "wide"
	default:
		return console.UsageError{Err: fmt.Errorf("%s %s: expected text, wide or json", variableOr("output", "-o", output), output)}
	}
	if level == "" {
		return nil
	}
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return console.UsageError{Err: fmt.Errorf("%s %s: expected debug, info, warn or error", variableOr("log-level", "--log-level", level), level)}
	}
	s.Level = &l
	return nil
}
