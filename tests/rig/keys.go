package rig

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/agentteams/team-server/pkg/server"
)

// Key returns an API key of a principal; its secret consists of the names of the account
// and the principal.
func Key(account, principal string) server.APIKey {
	sum := sha256.Sum256([]byte(account + "/" + principal))
	return server.APIKey{Name: principal, Account: account, SHA256: hex.EncodeToString(sum[:])}
}

// As returns the target with the credentials of a principal that has a Key.
func (t Target) As(account, principal string) Target {
	t.Key = account + "/" + principal
	return t
}

// Body returns the body of the response.
func (a *Answer) Body() ([]byte, error) { return a.all() }
