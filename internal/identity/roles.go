package identity

import (
	"regexp"
	"slices"
)

// role matches valid names of roles, here and in the configuration.
var role = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// IsRole reports whether s is a valid name of a role: 1 to 63 of the characters a-z, 0-9, "_" and
// "-", beginning with a letter or digit.
func IsRole(s string) bool { return role.MatchString(s) }

// MaxRoles is the maximum number of roles by which a question can be found. If a question names
// more, the first MaxRoles are used.
const MaxRoles = 16

// FindableRoles returns the roles by which a question to the given roles can be found: without
// duplicates, invalid names and those above MaxRoles. Invalid names can come from remote agents;
// no user can have such a role.
func FindableRoles(asked []string) []string {
	var list []string
	for _, r := range asked {
		if len(list) < MaxRoles && IsRole(r) && !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	return list
}
