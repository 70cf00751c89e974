package identity

import (
	"regexp"
	"strings"
)

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
