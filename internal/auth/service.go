package auth

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// maxKeys is the number of valid keys that a store may have. It may have twice as many in all.
	maxKeys = 10_000
	// nameRule describes what validName matches.
	nameRule = "1 to 63 of a-z, A-Z, 0-9, _ . @ and -, of which the first is a letter or a digit"
	// maxRoles is the number of roles that a key may have.
	maxRoles = 64
)

var (
	validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$`)
	validID   = regexp.MustCompile(`^[a-z2-7]{10}$`)
)

// letters encodes random bytes in keys.
var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewKey returns a random API key of 256 bits, its id, and its hash.
func NewKey() (id, secret string, sum [sha256.Size]byte) {
	random := make([]byte, 6+32)
	_, _ = rand.Read(random) // never fails
	id = letters.EncodeToString(random[:6])
	secret = "tsk_" + id + "_" + letters.EncodeToString(random[6:])
	return id, secret, sha256.Sum256([]byte(secret))
}

// Service implements KeyService. It is safe for concurrent use.
type Service struct {
	// Store has the keys. Required.
	Store Store
	// Server uses them; nil if every caller is accepted.
	Server *Server
	// Clock returns the current time. Required.
	Clock func() time.Time
}

// CreateKey implements the RPC.
func (s *Service) CreateKey(ctx context.Context, req *teamv1.CreateKeyRequest) (*teamv1.CreateKeyResponse, error) {
	who, err := identity.Require(ctx, identity.PermissionAdmin)
	if err != nil {
		return nil, err
	}
	if err := s.check(req); err != nil {
		return nil, err
	}
	all, err := s.Store.Keys(ctx)
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	valid := 0
	for _, k := range all {
		if !(entry{caller: callerOf(k.Key), revoked: k.Key.GetRevoked() != nil}).ended(s.Clock()) {
			valid++
		}
	}
	if valid >= maxKeys || len(all) >= 2*maxKeys {
		return nil, a2aerror.Invalid(agent.Violation{Field: "name", Description: "cannot have another key: the store has 10,000 valid keys or 20,000 in all, which is the most"})
	}
	id, secret, sum := NewKey()
	k := &teamv1.Key{
		Id: id, Account: cmp.Or(req.GetAccount(), "default"), Name: req.GetName(), Permissions: req.GetPermissions(), Roles: req.GetRoles(),
		Created: timestamppb.New(s.Clock()), CreatedBy: who.Owner(), Expires: req.GetExpires(),
	}
	if len(k.GetPermissions()) == 0 {
		k.Permissions = []teamv1.Permission_Value{teamv1.Permission_READ, teamv1.Permission_CALL, teamv1.Permission_ANSWER}
	}
	err = s.Store.PutKey(s.recorded(ctx, "key.create", k), StoredKey{Key: k, Hash: sum[:]})
	if err == nil {
		err = s.Server.Refresh(ctx)
	}
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	return &teamv1.CreateKeyResponse{Key: k, Secret: secret}, nil
}

// recorded returns a context with which the store records a change of a key in the audit log.
func (s *Service) recorded(ctx context.Context, action string, k *teamv1.Key) context.Context {
	return audit.Record(ctx, s.Clock(), action, k.GetId(), map[string]string{"owner": k.GetAccount() + "/" + k.GetName()})
}

// check returns INVALID_REQUEST with everything that is wrong with a request.
func (s *Service) check(req *teamv1.CreateKeyRequest) error {
	var faults a2aerror.Faults
	if s.Server == nil {
		faults.Add("", "cannot be done: this server has no server.auth and accepts calls without a key; add server.auth.api_keys to its file first, "+
			"for which team-server keys new --name NAME --offline prints an entry")
		return faults.Err()
	}
	if !validName.MatchString(req.GetName()) {
		faults.Add("name", "must be %s", nameRule)
	}
	if a := req.GetAccount(); a != "" && !identity.ValidAccount(a) {
		faults.Add("account", "must be %s", identity.AccountRule)
	}
	if len(req.GetRoles()) > maxRoles {
		faults.Add("roles", "has %d roles; at most %d are allowed", len(req.GetRoles()), maxRoles)
	}
	if i := slices.IndexFunc(req.GetRoles(), func(r string) bool { return !identity.IsRole(r) }); i >= 0 {
		faults.Add("roles", "has %.64q; a role is 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit", req.GetRoles()[i])
	}
	for _, p := range req.GetPermissions() {
		if _, known := identity.ParsePermission(p.String()); !known {
			faults.Add("permissions", "has %v; permissions are READ, CALL, ANSWER, WATCH, MANAGE, HALT and ADMIN", p)
			break
		}
	}
	if req.GetExpires() != nil && (req.GetExpires().CheckValid() != nil || !s.Clock().Before(req.GetExpires().AsTime())) {
		faults.Add("expires", "must be in the future")
	}
	return faults.Err()
}

// ListKeys implements the RPC. A page token is the last id of the page before.
func (s *Service) ListKeys(ctx context.Context, req *teamv1.ListKeysRequest) (*teamv1.ListKeysResponse, error) {
	if _, err := identity.Require(ctx, identity.PermissionAdmin); err != nil {
		return nil, err
	}
	size, err := a2aerror.PageSize("pageSize", req.GetPageSize())
	if err != nil {
		return nil, err
	}
	if t := req.GetPageToken(); t != "" && !validID.MatchString(t) {
		return nil, a2aerror.Invalid(agent.Violation{Field: "pageToken", Description: "is not a token of this list; use nextPageToken of the page before"})
	}
	all, err := s.Store.Keys(ctx)
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	resp := &teamv1.ListKeysResponse{}
	for _, k := range all {
		if k.Key.GetId() <= req.GetPageToken() {
			continue
		}
		if len(resp.Keys) == size {
			resp.NextPageToken = resp.GetKeys()[size-1].GetId()
			break
		}
		resp.Keys = append(resp.Keys, k.Key)
	}
	return resp, nil
}

// RevokeKey implements the RPC.
func (s *Service) RevokeKey(ctx context.Context, req *teamv1.RevokeKeyRequest) (*teamv1.RevokeKeyResponse, error) {
	who, err := identity.Require(ctx, identity.PermissionAdmin)
	if err != nil {
		return nil, err
	}
	all, err := s.Store.Keys(ctx)
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	i, found := slices.BinarySearchFunc(all, req.GetId(), func(k StoredKey, id string) int { return strings.Compare(k.Key.GetId(), id) })
	if !found {
		return nil, a2aerror.Invalid(agent.Violation{Field: "id", Description: "is not the id of a key that was made here; team-server keys ls lists them, and keys of the server's file are removed there"})
	}
	k := all[i]
	if k.Key.GetRevoked() != nil {
		return &teamv1.RevokeKeyResponse{Key: k.Key}, nil
	}
	k.Key.Revoked, k.Key.RevokedBy = timestamppb.New(s.Clock()), who.Owner()
	err = s.Store.PutKey(s.recorded(ctx, "key.revoke", k.Key), k)
	if err == nil {
		err = s.Server.Refresh(ctx)
	}
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	return &teamv1.RevokeKeyResponse{Key: k.Key}, nil
}
