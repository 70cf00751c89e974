// Package identity has who makes a call: the account, the principal, permissions and roles.
package identity

import (
	"context"
	"slices"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// Caller identifies who makes a call. The authentication of the server sets it with WithCaller.
type Caller struct {
	// Account is the security boundary: a caller never sees tasks of another account.
	Account string
	// Principal is the user or program within the account.
	Principal string
	// Permissions says what the caller may do.
	Permissions Permissions
	// Roles lists the caller's roles. The caller may answer questions that tasks of its account
	// address to them.
	Roles []string
	// EveryRole says that the caller has all roles.
	EveryRole bool
	// Expires is when the caller's right to call ends; zero means never.
	Expires time.Time
}

// Owner returns the name under which the caller's tasks are stored: account/principal.
func (c Caller) Owner() string { return c.Account + "/" + c.Principal }

// Has reports whether the caller has at least one of the given roles.
func (c Caller) Has(roles []string) bool {
	return c.EveryRole && len(roles) > 0 || slices.ContainsFunc(roles, func(r string) bool { return slices.Contains(c.Roles, r) })
}

// May reports whether the caller has all of the given permissions.
func (c Caller) May(p Permissions) bool { return c.Permissions&p == p }

type callerKey struct{}

// WithCaller returns a context for a call made by c.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller of ctx. ok is false if none is set.
func CallerOf(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// Authenticated returns the caller of ctx. The error is UNAUTHENTICATED if it has none.
func Authenticated(ctx context.Context) (Caller, error) {
	c, ok := CallerOf(ctx)
	if !ok {
		return c, agent.Errorf(agent.CodeUnauthenticated, agent.ReasonUnauthenticated, "the caller is not authenticated")
	}
	return c, nil
}

// Require returns the caller of ctx, who must have the given permissions. The error is
// UNAUTHENTICATED or PERMISSION_DENIED.
func Require(ctx context.Context, p Permissions) (Caller, error) {
	who, err := Authenticated(ctx)
	if err == nil && !who.May(p) {
		err = Denied(p &^ who.Permissions)
	}
	return who, err
}

// Denied returns the error for a caller that lacks permissions: PERMISSION_DENIED.
func Denied(lacks Permissions) *agent.Error {
	return agent.Errorf(agent.CodePermissionDenied, agent.ReasonPermissionDenied,
		"this call needs the permission %s, which the caller does not have; the operator of this server can add it to the caller's permissions", lacks)
}
