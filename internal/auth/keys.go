package auth

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
)

// hash is the SHA-256 hash of a key.
type hash [sha256.Size]byte

// entry is a key that is known.
type entry struct {
	id      string // of a key in the store; "" for one of the configuration
	caller  identity.Caller
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

// apiKeys authenticates callers by API key.
type apiKeys struct {
	file  map[hash]entry // of the configuration
	ring  atomic.Pointer[ring]
	clock func() time.Time
}

// newAPIKeys returns the authentication by the API keys of a configuration. The error names the key
// that is invalid.
func newAPIKeys(keys []*teamv1.ApiKey) (*apiKeys, error) {
	k := &apiKeys{file: map[hash]entry{}, clock: time.Now}
	for i, key := range keys {
		e, sum, err := entryOf(key)
		if err != nil {
			return nil, fmt.Errorf("key %d (%q): %w", i, key.GetName(), err)
		}
		k.file[sum] = e
	}
	k.set(nil)
	return k, nil
}

// entryOf returns a key of a configuration, and its hash.
func entryOf(key *teamv1.ApiKey) (e entry, sum hash, err error) {
	digest, err := hex.DecodeString(key.GetSha256())
	if err != nil || len(digest) != sha256.Size {
		return e, sum, errors.New("sha256 must be 64 hex digits")
	}
	sum = hash(digest)
	if err := checkName(key.GetName(), key.GetAccount()); err != nil {
		return e, sum, err
	}
	if at := slices.IndexFunc(key.GetRoles(), func(role string) bool { return !identity.IsRole(role) }); at >= 0 {
		return e, sum, fmt.Errorf("%q cannot be a role; use 1 to 63 of a-z, 0-9, _ and -", key.GetRoles()[at])
	}
	e.caller = identity.Caller{
		Account: cmp.Or(key.GetAccount(), "default"), Principal: key.GetName(), Roles: key.GetRoles(), Permissions: permissionsOf(key.GetPermissions()),
	}
	if key.GetManage() {
		e.caller.Permissions |= identity.PermissionManage | identity.PermissionHalt
	}
	if key.GetExpires() != "" {
		if e.caller.Expires, err = time.Parse(time.RFC3339, key.GetExpires()); err != nil {
			return e, sum, errors.New("expires must be a time of RFC 3339; for example 2027-01-31T00:00:00Z")
		}
	}
	return e, sum, nil
}

// permissionsOf returns the permissions of a list of the configuration, or the default ones.
func permissionsOf(list []teamv1.Permission_Value) identity.Permissions {
	return cmp.Or(identity.PermissionsOf(list), identity.DefaultPermissions)
}

// checkName returns an error unless a principal of the configuration may have a name and an account. A
// colon is only in principals of tokens.
func checkName(name, account string) error {
	switch {
	case !validName.MatchString(name):
		return fmt.Errorf("name %q must be %s", name, nameRule)
	case account != "" && !identity.ValidAccount(account):
		return fmt.Errorf("account %q must be %s", account, identity.AccountRule)
	}
	return nil
}

// set replaces the keys that are not of the configuration.
func (k *apiKeys) set(stored map[hash]entry) {
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
func (k *apiKeys) ended() map[string]bool {
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
func (k *apiKeys) Authenticate(r Request) (identity.Caller, error) {
	token, err := bearer(r)
	if err != nil {
		return identity.Caller{}, err
	}
	e, known := k.ring.Load().entries[sha256.Sum256([]byte(token))]
	switch {
	case !known:
		no := refuse(WhyUnknown, "", "unknown API key; check it, or ask the operator of this server for a key")
		no.Guess = true
		return identity.Caller{}, no
	case e.revoked:
		return identity.Caller{}, refuse(WhyRevoked, e.String(), "this API key was revoked; ask the operator of this server for a new one")
	case e.ended(k.clock()):
		return identity.Caller{}, refuse(WhyExpired, e.String(), fmt.Sprintf("this API key expired at %s; ask the operator of this server for a new one",
			e.caller.Expires.UTC().Format(time.RFC3339)))
	}
	return e.caller, nil
}

// String returns the owner of a key and its id, for the log.
func (e entry) String() string {
	return strings.TrimSpace(e.caller.Owner() + " " + e.id)
}

// Holds reports whether an owner has a key that is accepted.
func (k *apiKeys) Holds(owner string) bool {
	now := k.clock()
	return slices.ContainsFunc(k.ring.Load().owners[owner], func(e entry) bool { return !e.ended(now) })
}
