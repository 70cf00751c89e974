// Command team-server-temporal is team-server with an engine that lets Temporal schedule the runs. It is a module of its
// own, so that the requirements and the size of team-server do not depend on Temporal's client.
package main

import (
	"os"

	"github.com/agentteams/team-server/cmd/team-server-temporal/internal/temporal"
	"github.com/agentteams/team-server/internal/command"
	"github.com/agentteams/team-server/internal/serve"
)

func main() {
	os.Exit(command.Run(os.Args[1:], &serve.Temporal{New: temporal.New, Check: temporal.Check, Register: temporal.Register}))
}
