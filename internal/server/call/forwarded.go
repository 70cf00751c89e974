package call

import (
	"cmp"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// ForwardHeaders are the headers by which a proxy names the URL that its client used.
const ForwardHeaders = "X-Forwarded-Proto, X-Forwarded-Host, X-Forwarded-Prefix"

// forwardedHost and forwardedPrefix match the valid values of X-Forwarded-Host and
// X-Forwarded-Prefix.
var (
	forwardedHost   = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)
	forwardedPrefix = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*$`)
)

// Forwarded returns the base URL that a client used to call a trusted proxy. If a header
// has several values it uses the last one, which the trusted proxy added. It returns "" if
// the call did not come from a trusted proxy, or the headers are missing or malformed.
func Forwarded(trusted []netip.Prefix, r *http.Request) string {
	if !fromProxy(trusted, r.RemoteAddr) {
		return ""
	}
	proto, host, prefix := last(r, "X-Forwarded-Proto"), last(r, "X-Forwarded-Host"), last(r, "X-Forwarded-Prefix")
	if proto == "" && host == "" && prefix == "" {
		return ""
	}
	proto, host = strings.ToLower(cmp.Or(proto, "http")), cmp.Or(host, r.Host)
	prefix = strings.TrimRight(prefix, "/")
	if proto != "http" && proto != "https" || !forwardedHost.MatchString(host) || !forwardedPrefix.MatchString(prefix) {
		return ""
	}
	return proto + "://" + host + prefix
}

func fromProxy(trusted []netip.Prefix, remote string) bool {
	return within(trusted, addrOf(remote))
}

func within(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// addrOf returns the address in a host, with or without a port; the zero address if it
// has none.
func addrOf(host string) netip.Addr {
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if p, withPort := netip.ParseAddrPort(host); withPort == nil {
		addr, err = p.Addr(), nil
	}
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}

// CallerAddr returns the address that a call came from: remote, or the one that trusted
// proxies name in X-Forwarded-For. Each proxy appends the address of its own caller.
func CallerAddr(trusted []netip.Prefix, remote string, forwardedFor []string) netip.Addr {
	addr := addrOf(remote)
	for _, hop := range slices.Backward(list(forwardedFor)) {
		before := addrOf(hop)
		if !within(trusted, addr) || !before.IsValid() {
			break
		}
		addr = before
	}
	return addr
}

// last returns the last value of a header that lists several, "" without any.
func last(r *http.Request, name string) string {
	all := list(r.Header.Values(name))
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}
