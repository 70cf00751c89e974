package identity

import (
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

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
