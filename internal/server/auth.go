package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// APIKey is a key that callers present as a bearer token.
type APIKey struct {
	// Name is the principal; required and unique in its account.
	Name string
	// Account is the security boundary; empty is "default".
	Account string
	// SHA256 of the key, in hex. The key itself is kept nowhere.
	SHA256 string
	// Manage: who presents it may make, change and delete teams and agents.
	Manage bool
	// Roles: who presents it may answer what tasks of its account ask one of these.
	Roles []string
}

// maxToken bounds what is hashed for a caller nobody knows yet, in bytes.
const maxToken = 8 << 10

type keyEntry struct {
	sum    []byte
	caller a2a.Caller
}

// keyring knows the callers. It is in memory only: it is asked before a body is
// read, under the lock of a connection.
type keyring struct {
	entries []keyEntry
	guesses guesses
}

func newKeyring(keys []APIKey, log *zap.Logger) (*keyring, error) {
	k := &keyring{guesses: guesses{log: log}}
	for i, key := range keys {
		sum, err := hex.DecodeString(key.SHA256)
		switch {
		case err != nil || len(sum) != sha256.Size:
			return nil, fmt.Errorf("key %d (%q): sha256 must be 64 hex digits", i, key.Name)
		case key.Name == "" || strings.Contains(key.Name+key.Account, "/"):
			return nil, fmt.Errorf("key %d: name must be set, and name and account hold no \"/\"", i)
		}
		for _, role := range key.Roles {
			if !a2a.IsRole(role) {
				return nil, fmt.Errorf("key %d (%q): %q cannot be a role; use 1 to 63 of a-z, 0-9, _ and -", i, key.Name, role)
			}
		}
		account := key.Account
		if account == "" {
			account = "default"
		}
		k.entries = append(k.entries, keyEntry{sum, a2a.Caller{Account: account, Principal: key.Name, Manages: key.Manage, Roles: key.Roles}})
	}
	return k, nil
}

func (k *keyring) enabled() bool { return len(k.entries) > 0 }

// identify returns the caller for these authorization headers, from an address.
func (k *keyring) identify(authorization []string, from netip.Addr) (a2a.Caller, error) {
	if len(authorization) > 1 {
		return a2a.Caller{}, unauthenticated("more than one authorization header")
	}
	if !k.enabled() {
		return a2a.Caller{Account: "local", Principal: "local", Manages: true, EveryRole: true}, nil
	}
	if len(authorization) == 0 {
		return a2a.Caller{}, unauthenticated("this server wants an API key: send the header authorization: Bearer KEY")
	}
	scheme, token, _ := strings.Cut(authorization[0], " ")
	if !strings.EqualFold(scheme, "bearer") || len(token) > maxToken {
		return a2a.Caller{}, unauthenticated("this server takes API keys alone: send the header authorization: Bearer KEY")
	}
	found := k.find(strings.TrimSpace(token))
	if err := k.guesses.admit(from, found); err != nil {
		return a2a.Caller{}, err
	}
	if found < 0 {
		return a2a.Caller{}, unauthenticated("this server does not know the API key; check it, or ask who runs the server for one")
	}
	return k.entries[found].caller, nil
}

// find compares with all keys in constant time. It returns the number of the key, -1
// for an unknown one.
func (k *keyring) find(token string) int {
	sum := sha256.Sum256([]byte(token))
	found := -1
	for i, e := range k.entries {
		if subtle.ConstantTimeCompare(sum[:], e.sum) == 1 {
			found = i
		}
	}
	return found
}

func unauthenticated(text string) error {
	return agent.Errorf(agent.CodeUnauthenticated, agent.ReasonUnauthenticated, "%s", text)
}
