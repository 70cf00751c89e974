package rig

import (
	"crypto/sha256"
	"encoding/hex"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Key returns an API key of a principal; its secret consists of the names of the account
// and the principal.
func Key(account, principal string) *teamv1.ApiKey {
	sum := sha256.Sum256([]byte(account + "/" + principal))
	return &teamv1.ApiKey{Name: principal, Account: account, Sha256: hex.EncodeToString(sum[:])}
}

// Admin returns a Key with every permission.
func Admin(account, principal string) *teamv1.ApiKey {
	k := Key(account, principal)
	for p := range teamv1.Permission_Value_name {
		if p != 0 {
			k.Permissions = append(k.Permissions, teamv1.Permission_Value(p))
		}
	}
	return k
}

// Auth accepts the callers with some keys.
func Auth(keys ...*teamv1.ApiKey) *teamv1.AuthConfig { return &teamv1.AuthConfig{ApiKeys: keys} }

// Keys are the settings of a server that accepts the callers with some keys.
func Keys(keys ...*teamv1.ApiKey) *teamv1.ServerSettings {
	return &teamv1.ServerSettings{Auth: Auth(keys...)}
}

// As returns the target with the credentials of a principal that has a Key.
func (t Target) As(account, principal string) Target {
	t.Key = account + "/" + principal
	return t
}

// Body returns the body of the response.
func (a *Answer) Body() ([]byte, error) { return a.all() }
