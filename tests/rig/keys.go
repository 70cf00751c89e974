package rig

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/agentteams/team-server/pkg/server"
)

// Key is the API key of a principal of an account; its secret is their names.
func Key(account, principal string) server.APIKey {
	sum := sha256.Sum256([]byte(account + "/" + principal))
	return server.APIKey{Name: principal, Account: account, SHA256: hex.EncodeToString(sum[:])}
}

// As is the target as called by a principal that has a Key.
func (t Target) As(account, principal string) Target {
	t.Key = account + "/" + principal
	return t
}

// Body reads what an answer holds, as it is.
func (a *Answer) Body() ([]byte, error) { return a.all() }
