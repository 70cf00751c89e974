package wire

import (
	"net"
	"net/url"
	"regexp"
	"strings"
)

// user matches what may be a user and a password in an address.
var user = regexp.MustCompile(`[^/\s]*@`)

// WithoutUser returns a text that may be an address without a user in it, for people.
func WithoutUser(address string) string { return user.ReplaceAllString(address, "…@") }

// HostPort is where a URL leads, with the port that its scheme implies.
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

// TenantPath is what a tenant puts before the paths of REST, whatever the address of the
// interface ends in; empty without a tenant.
func TenantPath(tenant string) string {
	if tenant == "" {
		return ""
	}
	return "/" + url.PathEscape(tenant)
}
