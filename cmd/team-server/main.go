// Command team-server serves teams of AI agents over A2A and calls A2A servers.
package main

import (
	"os"

	"github.com/agentteams/team-server/internal/command"
)

func main() { os.Exit(command.Run(os.Args[1:], nil)) }
