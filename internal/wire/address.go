package wire

import (
	"net/url"
	"regexp"
)

// user matches the user and password in an address, and whatever is before the last @ in one.
var user = regexp.MustCompile(`(//)\S*@|[^/\s]*@`)

// query matches the query of an address, and what follows it.
var query = regexp.MustCompile(`(?s)\?.*`)

// Redacted returns an address, or any other text, with its user, password and query replaced.
func Redacted(address string) string {
	return query.ReplaceAllString(user.ReplaceAllString(address, "${1}…@"), "?…")
}

// TenantPath returns the prefix of REST paths for a tenant; empty if tenant is.
func TenantPath(tenant string) string {
	if tenant == "" {
		return ""
	}
	return "/" + url.PathEscape(tenant)
}
