package a2a

import (
	"context"
	"regexp"
	"slices"
	"strings"
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

// validAccount matches accounts, here and in the configuration.
var validAccount = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// AccountRule describes what ValidAccount accepts.
const AccountRule = "1 to 63 of a-z, A-Z, 0-9, _ . and -, of which the first is a letter or a digit"

// ValidAccount reports whether a text can be the name of an account; see AccountRule. The first character
// keeps "-", which stands for the caller's account, and the path segments "." and ".." from being accounts.
func ValidAccount(account string) bool { return validAccount.MatchString(account) }

// AccountOf returns the account of an owner, the part before the slash.
func AccountOf(owner string) string {
	account, _, _ := strings.Cut(owner, "/")
	return account
}

// Has reports whether the caller has at least one of the given roles.
func (c Caller) Has(roles []string) bool {
	return c.EveryRole && len(roles) > 0 || slices.ContainsFunc(roles, func(r string) bool { return slices.Contains(c.Roles, r) })
}

// May reports whether the caller has all of the given permissions.
func (c Caller) May(p Permissions) bool { return c.Permissions&p == p }

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
