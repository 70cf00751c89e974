// Command team-server serves teams of agents over A2A, and talks to such servers.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/agentteams/team-server/internal/app"
)

func main() { os.Exit(run(os.Args[1:])) }

// run runs a command until it ends or a signal asks it to, and returns its exit
// code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends what does not look at ctx
	s := &app.Shell{In: os.Stdin, Out: os.Stdout, Talk: os.Stderr}
	root := newRoot(s)
	root.SetArgs(args)
	return s.Exit(interrupted(ctx, root.ExecuteContext(ctx)))
}

// interrupted says in a word of an error that it is the end of ctx alone.
func interrupted(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
		return errors.New("interrupted")
	}
	return err
}
