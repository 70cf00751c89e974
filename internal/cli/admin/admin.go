// Package admin implements the commands with which a running server is administered: accounts, API keys, costs, halts and the
// audit log.
package admin

import "github.com/agentteams/team-server/internal/cli/console"

// Commands are the commands of administrators. They print to the console and call the server of the connection.
type Commands struct {
	Console    *console.Console
	Connection *console.Connection
}
