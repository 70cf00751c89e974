package server

import (
	"cmp"
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
	// Name is the name of the principal. It is required, and must not contain a slash.
	Name string
	// Account is the account of the principal, which is the security boundary. It must not
	// contain a slash; "" means "default".
	Account string
	// SHA256 is the SHA-256 hash of the key in 64 hexadecimal digits. The key itself is not
	// stored.
	SHA256 string
	// Permissions says what the principal may do; 0 means a2a.DefaultPermissions.
	Permissions a2a.Permissions
	// Roles are the roles of the principal. It may answer the questions that tasks of its
	// account ask one of these roles.
	Roles []string
}

// maxToken is the maximum length of a token in bytes. It limits the work done for a caller
// that is not authenticated yet.
const maxToken = 8 << 10

type keyEntry struct {
	sum    []byte
	caller a2a.Caller
}

// keyring authenticates callers by API key. It does no I/O, because grpc-go calls it with
// the lock of a connection held, before the message is read.
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
			return nil, fmt.Errorf("key %d: name is required, and name and account must not contain \"/\"", i)
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
		k.entries = append(k.entries, keyEntry{sum, a2a.Caller{Account: account, Principal: key.Name, Permissions: cmp.Or(key.Permissions, a2a.DefaultPermissions), Roles: key.Roles}})
	}
	return k, nil
}

func (k *keyring) enabled() bool { return len(k.entries) > 0 }

// identify returns the caller for the values of its authorization headers and its network
// address. Without configured keys every caller is local/local, which may manage teams and
// has every role.
func (k *keyring) identify(authorization []string, from netip.Addr) (a2a.Caller, error) {
	if len(authorization) > 1 {
		return a2a.Caller{}, unauthenticated("more than one authorization header")
	}
	if !k.enabled() {
		return a2a.Caller{Account: "local", Principal: "local", Permissions: a2a.EveryPermission, EveryRole: true}, nil
	}
	if len(authorization) == 0 {
		return a2a.Caller{}, unauthenticated("this server requires an API key; send the header authorization: Bearer KEY")
	}
	scheme, token, _ := strings.Cut(authorization[0], " ")
	if !strings.EqualFold(scheme, "bearer") || len(token) > maxToken {
		return a2a.Caller{}, unauthenticated("this server accepts only API keys as bearer tokens; send the header authorization: Bearer KEY")
	}
	found := k.find(strings.TrimSpace(token))
	if err := k.guesses.admit(from, found); err != nil {
		return a2a.Caller{}, err
	}
	if found < 0 {
		return a2a.Caller{}, unauthenticated("unknown API key; check it, or ask the operator of this server for a key")
	}
	return k.entries[found].caller, nil
}

// find compares the token with all keys in constant time. It returns the index of the
// matching key, or -1 for an unknown one.
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
