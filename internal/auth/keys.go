package auth

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agentteams/team-server/pkg/a2a"
)

// APIKey is a key that callers present as a bearer token.
type APIKey struct {
	// Name is the name of the principal: 1 to 63 of a-z, A-Z, 0-9, _ . @ and -, of which the first is a letter
	// or a digit. Required.
	Name string
	// Account is the account of the principal, which is the security boundary: up to 63 of a-z,
	// A-Z, 0-9, _ . and -; "" means "default".
	Account string
	// SHA256 is the SHA-256 hash of the key in 64 hexadecimal digits. The key itself is not
	// stored.
	SHA256 string
	// Permissions says what the principal may do; 0 means a2a.DefaultPermissions.
	Permissions a2a.Permissions
	// Roles are the roles of the principal. It may answer the questions that tasks of its
	// account ask one of these roles.
	Roles []string
	// Expires is when the key ends; zero means never.
	Expires time.Time
}

// hash is the SHA-256 hash of a key.
type hash [sha256.Size]byte

// entry is a key that is known.
type entry struct {
	id      string // of a key in the store; "" for one of the configuration
	caller  a2a.Caller
	revoked bool
}

// ended reports whether the key has been revoked or has expired.
func (e entry) ended(now time.Time) bool {
	return e.revoked || !e.caller.Expires.IsZero() && !now.Before(e.caller.Expires)
}

// ring has all keys that are known. It is not modified.
type ring struct {
	entries map[hash]entry
	owners  map[string][]entry
}

// Keys authenticates callers by API key.
type Keys struct {
	file  map[hash]entry // of the configuration
	ring  atomic.Pointer[ring]
	clock func() time.Time
}

// NewKeys returns the authentication by the API keys of a configuration. The error names the key
// that is invalid.
func NewKeys(keys []APIKey) (*Keys, error) {
	k := &Keys{file: map[hash]entry{}, clock: time.Now}
	for i, key := range keys {
		sum, err := hex.DecodeString(key.SHA256)
		switch {
		case err != nil || len(sum) != sha256.Size:
			return nil, fmt.Errorf("key %d (%q): sha256 must be 64 hex digits", i, key.Name)
		}
		if err := checkName(key.Name, key.Account); err != nil {
			return nil, fmt.Errorf("key %d (%q): %w", i, key.Name, err)
		}
		if at := slices.IndexFunc(key.Roles, func(role string) bool { return !a2a.IsRole(role) }); at >= 0 {
			return nil, fmt.Errorf("key %d (%q): %q cannot be a role; use 1 to 63 of a-z, 0-9, _ and -", i, key.Name, key.Roles[at])
		}
		k.file[hash(sum)] = entry{caller: a2a.Caller{
			Account: cmp.Or(key.Account, "default"), Principal: key.Name, Roles: key.Roles,
			Permissions: cmp.Or(key.Permissions, a2a.DefaultPermissions), Expires: key.Expires,
		}}
	}
	k.set(nil)
	return k, nil
}

// checkName returns an error unless a principal of the configuration may have a name and an account. A
// colon is only in principals of tokens.
func checkName(name, account string) error {
	switch {
	case !validName.MatchString(name):
		return fmt.Errorf("name %q must be %s", name, nameRule)
	case account != "" && !a2a.ValidAccount(account):
		return fmt.Errorf("account %q must be %s", account, a2a.AccountRule)
	}
	return nil
}

// set replaces the keys that are not of the configuration.
func (k *Keys) set(stored map[hash]entry) {
	r := &ring{entries: map[hash]entry{}, owners: map[string][]entry{}}
	for _, of := range []map[hash]entry{stored, k.file} { // those of the configuration take precedence
		for h, e := range of {
			r.entries[h] = e
		}
	}
	for _, e := range r.entries {
		r.owners[e.caller.Owner()] = append(r.owners[e.caller.Owner()], e)
	}
	k.ring.Store(r)
}

// ended returns the owners all of whose keys have expired or were revoked, and for each whether one of
// these keys is in the store.
func (k *Keys) ended() map[string]bool {
	now := k.clock()
	owners := map[string]bool{}
	for owner, keys := range k.ring.Load().owners {
		if !slices.ContainsFunc(keys, func(e entry) bool { return !e.ended(now) }) {
			owners[owner] = slices.ContainsFunc(keys, func(e entry) bool { return e.id != "" })
		}
	}
	return owners
}

// Authenticate implements Authenticator. The time that it takes depends on the hash of the token
// only, from which nothing about a key follows.
func (k *Keys) Authenticate(r Request) (a2a.Caller, error) {
	token, err := bearer(r)
	if err != nil {
		return a2a.Caller{}, err
	}
	e, known := k.ring.Load().entries[sha256.Sum256([]byte(token))]
	switch {
	case !known:
		no := refuse(WhyUnknown, "", "unknown API key; check it, or ask the operator of this server for a key")
		no.Guess = true
		return a2a.Caller{}, no
	case e.revoked:
		return a2a.Caller{}, refuse(WhyRevoked, e.String(), "this API key was revoked; ask the operator of this server for a new one")
	case e.ended(k.clock()):
		return a2a.Caller{}, refuse(WhyExpired, e.String(), fmt.Sprintf("this API key expired at %s; ask the operator of this server for a new one",
			e.caller.Expires.UTC().Format(time.RFC3339)))
	}
	return e.caller, nil
}

// String returns the owner of a key and its id, for the log.
func (e entry) String() string {
	return strings.TrimSpace(e.caller.Owner() + " " + e.id)
}

// Holds reports whether an owner has a key that is accepted.
func (k *Keys) Holds(owner string) bool {
	now := k.clock()
	return slices.ContainsFunc(k.ring.Load().owners[owner], func(e entry) bool { return !e.ended(now) })
}
