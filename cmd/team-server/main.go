// Command team-server serves teams of agents over A2A, and talks to such servers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/config"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1 // a run that failed, and everything else
	exitUsage       = 2
	exitConfig      = 3
	exitUnreachable = 5
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run runs a command until it ends or a signal asks it to.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(&shell{in: stdin, out: stdout, talk: stderr})
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return exitCode(root.ExecuteContext(ctx), stderr)
}

// usageError is a command line that cannot be followed.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// errFailed ends a command whose failure has been told already.
var errFailed = errors.New("failed")

// exitCode says how a command ended, in words and as its exit code.
func exitCode(err error, stderr io.Writer) int {
	var usage usageError
	var faults config.Faults
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFailed):
		return exitFailed
	case errors.Is(err, errInvalid):
		return exitConfig
	case errors.As(err, &faults):
		faults.Print(stderr)
		return exitConfig
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%v\nSee team-server --help\n", err)
		return exitUsage
	case errors.Is(err, client.ErrUnreachable):
		fmt.Fprintln(stderr, err)
		return exitUnreachable
	}
	fmt.Fprintln(stderr, err)
	return exitFailed
}
