// Command team-server serves teams of agents over A2A, and talks to such servers.
package main

import (
	"context"
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
	return s.Exit(root.ExecuteContext(ctx))
}
