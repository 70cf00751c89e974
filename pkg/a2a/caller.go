package a2a

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
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

// PrincipalOf returns the principal of an owner, the part behind the slash.
func PrincipalOf(owner string) string {
	_, principal, _ := strings.Cut(owner, "/")
	return principal
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

// Permissions is a set of permissions of a caller. Permissions never reach beyond the account of the
// caller, except PermissionAdmin.
type Permissions uint8

// The permissions.
const (
	// PermissionRead permits to read tasks, teams, agents and costs of the caller's account.
	PermissionRead Permissions = 1 << iota
	// PermissionCall permits to send messages, and to cancel, pause and resume the caller's own tasks.
	PermissionCall
	// PermissionAnswer permits to answer the questions of tasks of the account.
	PermissionAnswer
	// PermissionManage permits to create, change and delete teams and agents of the account.
	PermissionManage
	// PermissionHalt permits to halt work of the account, and to resume it.
	PermissionHalt
	// PermissionAdmin permits what concerns the server and all accounts: limits of accounts, halts
	// beyond the account, keys and the audit log.
	PermissionAdmin
	// PermissionWatch permits to read the tasks of all principals of the account.
	PermissionWatch

	// EveryPermission is the set of all permissions.
	EveryPermission = PermissionRead | PermissionCall | PermissionAnswer | PermissionManage | PermissionHalt | PermissionAdmin | PermissionWatch
	// DefaultPermissions are those of a caller for whom the configuration names none.
	DefaultPermissions = PermissionRead | PermissionCall | PermissionAnswer
)

// permissionNames are the names of the permissions, in the order of their bits.
var permissionNames = []string{"READ", "CALL", "ANSWER", "MANAGE", "HALT", "ADMIN", "WATCH"}

// ParsePermission returns the permission with a name, as in the configuration file, and false if
// there is no such permission.
func ParsePermission(name string) (Permissions, bool) {
	for i, n := range permissionNames {
		if n == name {
			return 1 << i, true
		}
	}
	return 0, false
}

// PermissionsOf returns the set of some permissions of a configuration or a key. Unknown ones are left
// out.
func PermissionsOf(list []teamv1.Permission_Value) (p Permissions) {
	for _, one := range list {
		known, _ := ParsePermission(one.String()) // the enum has the same names
		p |= known
	}
	return p
}

// Names returns the names of the permissions in the set, as in the configuration file.
func (p Permissions) Names() []string {
	var names []string
	for i, n := range permissionNames {
		if p&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return names
}

// String returns the names of the permissions, separated by commas.
func (p Permissions) String() string { return strings.Join(p.Names(), ", ") }
