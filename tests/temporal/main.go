// Command temporal is a Temporal server in memory for the tests of cmd/team-server-temporal. It prints its address and
// its namespace, and forgets everything when it ends. It is a module of its own, because it selects versions of
// modules that team-server has in others.
package main

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"go.temporal.io/server/temporaltest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := temporaltest.NewServer()
	defer s.Stop()
	fmt.Println("ready", s.GetFrontendHostPort(), s.GetDefaultNamespace())
	<-ctx.Done()
}
