package manage

import (
	"cmp"
	"context"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
)

// Allows reports whether a caller may use an agent or team that is served. It implements a2a.Access.
func (g *Registry) Allows(who identity.Caller, id string) bool {
	s := g.state()
	def := s.def
	switch {
	case !def.Used[id], who.Account == "": // only part of other agents or teams; not authenticated
		return false
	case g.c.Open:
		return true
	}
	access := def.Access(id)
	if def.Addition(id) == "" {
		return access == nil || matches(access, who)
	}
	e := s.entries[def.Addition(id)]
	return e != nil && allows(e, access, who)
}

// AllowsRuns reports whether runs of an account may begin tasks of an agent. Agents of the file are always allowed,
// because only the definitions of the file, and those that the file allows, refer to them. An agent that was made by
// the API is allowed to its own account and to the accounts in its access; without authentication, to all. It
// implements a2a.Access.
func (g *Registry) AllowsRuns(account, id string) bool {
	s := g.state()
	def := s.def
	if g.c.Open || def.Addition(id) == "" {
		return true
	}
	e := s.entries[def.Addition(id)]
	return e != nil && (e.Account == account || slices.Contains(def.Access(id).GetAccounts(), account))
}

// HasPublicCard implements a2a.Access.
func (g *Registry) HasPublicCard(id string) bool {
	def := g.Served()
	return def.Used[id] && def.HasPublicCard(id)
}

// allows reports whether a caller may use what an entry defines. Other accounts than its own need to
// be named in its access.
func allows(e *entry, access *teamv1.AccessConfig, who identity.Caller) bool {
	own := e.Account == who.Account
	switch {
	case access == nil:
		return own
	case own && len(access.GetAccounts()) > 0: // its own account need not be listed
		return matches(&teamv1.AccessConfig{Principals: access.GetPrincipals(), Roles: access.GetRoles()}, who)
	case !own && len(access.GetAccounts())+len(access.GetPrincipals()) == 0:
		return false // roles alone do not reach beyond an account
	}
	return matches(access, who)
}

// matches reports whether a caller matches every list that is set.
func matches(a *teamv1.AccessConfig, who identity.Caller) bool {
	return (len(a.GetAccounts()) == 0 || slices.Contains(a.GetAccounts(), who.Account)) &&
		(len(a.GetPrincipals()) == 0 || slices.Contains(a.GetPrincipals(), who.Owner())) &&
		(len(a.GetRoles()) == 0 || who.Has(a.GetRoles()))
}

// sees reports whether the caller of ctx may read the definition of an agent or team: callers who may
// use it, callers of the account to which it belongs, and administrators.
func (g *Registry) sees(ctx context.Context, id string) bool {
	who, _ := identity.CallerOf(ctx)
	if g.Allows(who, id) || who.May(identity.PermissionAdmin) {
		return true
	}
	s := g.state()
	e := s.entries[cmp.Or(s.owners[id], id)]
	return e != nil && s.mayChange(e, who)
}

// mayChange reports whether a caller with PermissionManage may change an entry.
func (s *state) mayChange(e *entry, who identity.Caller) bool {
	return s.open || who.May(identity.PermissionAdmin) || e.Account == who.Account
}

// readable reports whether a caller may read what the file defines.
func (s *state) readable(id string, who identity.Caller) bool {
	a := s.file.Access(id)
	return a == nil || s.open || who.May(identity.PermissionAdmin) || matches(a, who)
}
