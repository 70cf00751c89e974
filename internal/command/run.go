// Package command is the tree of commands of team-server and team-server-temporal, with their flags, signals and exit
// codes.
package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"

	_ "golang.org/x/crypto/x509roots/fallback" // authorities to trust on a system without any, such as an empty image

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/serve"
)

// Run runs a command and returns its exit code. SIGINT and SIGTERM cancel the command. temporal is for files with
// server.engine.temporal; nil refuses to serve them.
func Run(args []string, temporal *serve.Temporal) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	s := &cli.Shell{Console: console.Console{In: os.Stdin, Terminal: isTerminal(os.Stdin) && isTerminal(os.Stderr), Out: os.Stdout, Talk: os.Stderr, JSON: wantsJSON(args)}, Temporal: temporal}
	root := newRoot(s)
	root.SetArgs(args)
	return s.Exit(interrupted(ctx, root.ExecuteContext(ctx)))
}

// isTerminal reports whether a file is a terminal, or another device to which characters are written.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// interrupted returns console.ErrInterrupted for an error caused by a signal, and other errors
// unchanged.
func interrupted(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
		return console.ErrInterrupted
	}
	return err
}

// wantsJSON reports whether the arguments or the environment ask for JSON. It also
// works for a command line that cannot be parsed, so that its error is printed as JSON
// too.
func wantsJSON(args []string) bool {
	output := os.Getenv("TEAM_OUTPUT")
	for i, a := range args {
		switch {
		case a == "--":
			return output == "json"
		case (a == "-o" || a == "--output") && i+1 < len(args):
			output = args[i+1]
		case strings.HasPrefix(a, "--output="):
			output = strings.TrimPrefix(a, "--output=")
		case strings.HasPrefix(a, "-o"):
			output = strings.TrimPrefix(strings.TrimPrefix(a, "-o"), "=")
		}
	}
	return output == "json"
}
