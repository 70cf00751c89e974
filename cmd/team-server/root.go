package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/client"
)

// shell is what all commands share: where they read and write, and the flags
// that hold for each of them.
type shell struct {
	in   io.Reader
	out  io.Writer // data
	talk io.Writer // everything else

	server, token string
	output        string
	logLevel      string
}

func newRoot(s *shell) *cobra.Command {
	root := &cobra.Command{
		Use:           "team-server",
		Short:         "Serves teams of agents over A2A, and talks to such servers",
		SilenceErrors: true, SilenceUsage: true,
		Args:              usage(cobra.NoArgs),
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return s.prepare(c) },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := root.PersistentFlags()
	f.StringVar(&s.server, "server", "", "address of a running team-server, for example http://127.0.0.1:8080 (TEAM_SERVER)")
	f.StringVar(&s.token, "token", "", "bearer token for the server (TEAM_TOKEN)")
	f.StringVarP(&s.output, "output", "o", "text", "text or json")
	f.StringVar(&s.logLevel, "log-level", "", "debug, info, warn or error (TEAM_LOG_LEVEL)")
	root.AddCommand(s.devCommand(), s.serveCommand(), s.validateCommand(), s.runCommand(), s.callCommand(), s.cardCommand(), s.versionCommand())
	return root
}

// usage makes wrong arguments a usage error.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			if !c.HasParent() && len(args) > 0 {
				err = fmt.Errorf("unknown command %q", args[0])
			}
			return usageError{err}
		}
		return nil
	}
}

// prepare takes flags that are not given from the environment, TEAM_NAME for
// --name, and checks those that hold for all commands.
func (s *shell) prepare(c *cobra.Command) error {
	var err error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		name := "TEAM_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed || err != nil {
			return
		}
		if setErr := c.Flags().Set(f.Name, value); setErr != nil {
			err = usageError{fmt.Errorf("%s: %w", name, setErr)}
		}
	})
	if err != nil {
		return err
	}
	if s.output != "text" && s.output != "json" {
		return usageError{fmt.Errorf("-o %s: expected text or json", s.output)}
	}
	if _, err := s.level(zapcore.InfoLevel); err != nil {
		return usageError{err}
	}
	return nil
}

func (s *shell) json() bool { return s.output == "json" }

func (s *shell) level(fallback zapcore.Level) (zapcore.Level, error) {
	if s.logLevel == "" {
		return fallback, nil
	}
	l, err := zapcore.ParseLevel(s.logLevel)
	if err != nil {
		return l, fmt.Errorf("--log-level %s: expected debug, info, warn or error", s.logLevel)
	}
	return l, nil
}

// log returns the log: lines for people in a terminal, JSON for machines.
func (s *shell) log(fallback zapcore.Level) *zap.Logger {
	level, _ := s.level(fallback) // checked by prepare
	c := zap.NewProductionEncoderConfig()
	c.EncodeTime = zapcore.RFC3339TimeEncoder
	encoder := zapcore.NewConsoleEncoder(c)
	if s.json() {
		encoder = zapcore.NewJSONEncoder(c)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(s.talk)), level))
}

// client is how a server is called.
func (s *shell) client() client.Config { return client.Config{Token: s.token} }

func (s *shell) sayf(format string, args ...any) { fmt.Fprintf(s.talk, format+"\n", args...) }
