package wire

import (
	"net"
	"net/url"
	"regexp"
	"strings"
)

// user matches the user and password in an address, and whatever is before the last @ in one.
var user = regexp.MustCompile(`(//)\S*@|[^/\s]*@`)

// query matches the query of an address, and what follows it.
var query = regexp.MustCompile(`(?s)\?.*`)

// Redacted returns an address, or any other text, with its user, password and query replaced.
func Redacted(address string) string {
	return query.ReplaceAllString(user.ReplaceAllString(address, "${1}…@"), "?…")
}

// HostPort returns the host and port of a URL in lower case. Without a port it is 80 for http,
// and 443 for all other schemes.
func HostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
		if u.Scheme == "http" {
			port = "80"
		}
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// TenantPath returns the prefix of REST paths for a tenant; empty if tenant is.
func TenantPath(tenant string) string {
	if tenant == "" {
		return ""
	}
	return "/" + url.PathEscape(tenant)
}
