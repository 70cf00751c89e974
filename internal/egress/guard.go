package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"code.dny.dev/ssrf"
)

// ErrNotAllowed is the error for an address that a Guard does not allow.
var ErrNotAllowed = errors.New("address not allowed")

// Guard decides which addresses that callers or cards have named may be connected to: public
// addresses, and those that the operator allows. It is safe for concurrent use.
type Guard struct{ allow atomic.Pointer[[]rule] }

// rule allows the addresses of a prefix, or those of a host by its name.
type rule struct {
	host   string // "" for a prefix
	prefix netip.Prefix
	port   uint16 // 0 means every port
}

// wireServer is a public address at which virtual machines of one cloud read their credentials.
var wireServer = netip.MustParsePrefix("168.63.129.16/32")

// Loopback returns the entries that allow the addresses of this machine.
func Loopback() []string { return []string{"127.0.0.0/8", "::1"} }

// NewGuard returns a Guard that allows public addresses and those of the entries. An entry is a
// CIDR, an IP address or a host name, each with or without a port. The error says what is wrong with
// an entry and what to write instead.
func NewGuard(allow ...string) (*Guard, error) {
	g, rules := &Guard{}, []rule{}
	for _, entry := range allow {
		r, err := parseRule(entry)
		if err != nil {
			return nil, fmt.Errorf("%q %w", entry, err)
		}
		rules = append(rules, r)
	}
	g.allow.Store(&rules)
	return g, nil
}

// Replace makes g allow what other allows, also for connections of dialers that have g.
func (g *Guard) Replace(other *Guard) { g.allow.Store(other.allow.Load()) }

// NewGuarded returns a Dialer with the Guard of the entries.
func NewGuarded(allow ...string) (*Dialer, error) {
	g, err := NewGuard(allow...)
	if err != nil {
		return nil, err
	}
	return New(Config{Allow: g.Allow})
}

// CheckEntry returns what is wrong with an entry for NewGuard, and after a semicolon what to write
// instead.
func CheckEntry(entry string) error {
	_, err := parseRule(entry)
	return err
}

// hostName matches host names in lower case.
var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,62}\.)*[a-z0-9_-]{0,62}$`)

// errPort is the error for a port that does not exist.
var errPort = errors.New("has an invalid port; it must be 1 to 65535")

var errEntry = errors.New("is not an address; write a CIDR, CIDR:PORT, HOST or HOST:PORT, for example 10.1.0.0/16, [fd00::/8]:443 or hooks.internal:8443")

func parseRule(entry string) (rule, error) {
	if p, ok := parsePrefix(entry); ok {
		return prefixRule(p, 0)
	}
	name, port, err := splitPort(entry)
	if err != nil {
		return rule{}, err
	}
	if p, ok := parsePrefix(name); ok {
		return prefixRule(p, port)
	}
	name = normal(name)
	if !hostName.MatchString(name) || endsInNumber(name) {
		return rule{}, errEntry
	}
	return rule{host: name, port: port}, nil
}

func prefixRule(p netip.Prefix, port uint16) (rule, error) {
	switch {
	case p.Addr().Is4In6():
		return rule{}, fmt.Errorf("is an IPv4 address in the form of IPv6; write it as IPv4, such as %s", p.Addr().Unmap())
	case p != p.Masked():
		return rule{}, fmt.Errorf("has bits set after its first %d; write %s", p.Bits(), p.Masked())
	}
	return rule{prefix: p, port: port}, nil
}

// parsePrefix parses a CIDR or an IP address.
func parsePrefix(s string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p, true
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}

// splitPort splits an entry into its name, without brackets, and its port, 0 if it has none.
func splitPort(entry string) (name string, port uint16, err error) {
	inner, bracket := strings.CutPrefix(entry, "[")
	name, digits, has := strings.Cut(inner, ":")
	if bracket {
		var closed bool
		name, digits, closed = strings.Cut(inner, "]")
		if digits, has = strings.CutPrefix(digits, ":"); !closed || !has && digits != "" {
			return "", 0, errEntry
		}
	}
	if !has {
		return name, 0, nil
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return "", 0, errPort
	}
	return name, uint16(n), nil
}

// normal returns the form of a host name that is compared.
func normal(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// lastNumber matches the last part of an IPv4 address in any form that resolvers accept.
var lastNumber = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`)

// endsInNumber reports whether a host is an IPv4 address in any form, such as 127.1, 0x7f000001 or
// 017700000001: no top-level domain is a number.
func endsInNumber(host string) bool {
	return lastNumber.MatchString(host[strings.LastIndex(host, ".")+1:])
}

// Allow returns an error that wraps ErrNotAllowed unless addr may be connected to. It is the value
// for Config.Allow: the context names the host whose address addr is.
func (g *Guard) Allow(ctx context.Context, addr netip.AddrPort) error {
	host, _ := hostOf(ctx)
	if g.allows(host, addr) {
		return nil
	}
	return fmt.Errorf("%s is not public and is not in server.egress.allow: %w", addr, ErrNotAllowed)
}

// allows reports whether an address of a host may be connected to.
func (g *Guard) allows(host string, addr netip.AddrPort) bool {
	ip := addr.Addr().Unmap()
	if g.lists(host, netip.AddrPortFrom(ip, addr.Port())) {
		if v4, ok := translated(ip); ok { // a translator allows what its IPv4 address allows
			return g.allows(host, netip.AddrPortFrom(v4, addr.Port()))
		}
		return true
	}
	return isPublic(ip)
}

// translated returns the IPv4 address to which a NAT64 gateway translates an address.
func translated(ip netip.Addr) (netip.Addr, bool) {
	if !ssrf.IPv6NAT64Prefix.Contains(ip) {
		return netip.Addr{}, false
	}
	b := ip.As16()
	return netip.AddrFrom4([4]byte(b[12:])), true
}

// lists reports whether the operator allows an address of a host. addr may be the zero address for
// a host whose address is not known yet.
func (g *Guard) lists(host string, addr netip.AddrPort) bool {
	return slices.ContainsFunc(*g.allow.Load(), func(r rule) bool {
		if r.port != 0 && r.port != addr.Port() {
			return false
		}
		return r.host != "" && r.host == host || r.host == "" && r.prefix.Contains(addr.Addr())
	})
}

// Host returns an error if a host cannot be allowed, whatever its name resolves to. The error says,
// after the name of a field, what is wrong. Names are checked again when they are resolved.
func (g *Guard) Host(host string, port uint16) error {
	_, err := g.host(host, port)
	return err
}

// errPrivate is the error for hosts that only the operator can allow.
var errPrivate = errors.New("is at an address that is not public; use a public address, or have the operator of this server add it to server.egress.allow")

// host is like Host and reports whether the operator allows the host.
func (g *Guard) host(host string, port uint16) (listed bool, err error) {
	name := normal(host)
	ip, bad := netip.ParseAddr(strings.TrimSuffix(host, "."))
	switch {
	case name == "":
		return false, errors.New("has no host")
	case bad == nil && ip.Zone() != "":
		return false, errors.New("has a zone in its IP address; leave out % and what follows")
	case bad == nil:
		at := netip.AddrPortFrom(ip.Unmap(), port)
		if !g.allows(name, at) {
			return false, errPrivate
		}
		return g.lists(name, at), nil
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		for _, ip := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
			if g.lists(name, netip.AddrPortFrom(ip, port)) {
				return true, nil
			}
		}
		return false, errPrivate
	case endsInNumber(name):
		return false, errors.New("has an IP address in an unusual form; write an IPv4 address as four decimal numbers")
	case !hostName.MatchString(name):
		return false, errors.New("has a host with characters that host names do not have; write names of other scripts in their ASCII form, xn--…")
	}
	return g.lists(name, netip.AddrPortFrom(netip.Addr{}, port)), nil
}

// Webhook returns an error if a URL cannot be that of a webhook: it must use https, with port 443 or
// 8443, unless the operator allows its host. The error says, after the name of a field, what is
// wrong. The address is checked again by Allow for each connection.
func (g *Guard) Webhook(u *url.URL) error {
	port, err := portOf(u)
	if err != nil {
		return err
	}
	listed, err := g.host(u.Hostname(), port)
	switch {
	case err != nil || listed:
		return err
	case u.Scheme != "https":
		return errors.New("must begin with https://; http is allowed only for hosts that the operator of this server adds to server.egress.allow")
	case port != 443 && port != 8443:
		return errors.New("has a port other than 443 and 8443; use one of these, or have the operator of this server add HOST:PORT to server.egress.allow")
	}
	return nil
}

// HostPort returns the host and port of a URL in lower case. Without a port it is 80 for http, and 443 for all other
// schemes.
func HostPort(u *url.URL) string {
	return net.JoinHostPort(strings.ToLower(u.Hostname()), portText(u))
}

// portText returns the port of an http or https URL as text.
func portText(u *url.URL) string {
	port, _ := portOf(u) // a port that is invalid is 0
	return strconv.Itoa(int(port))
}

// portOf returns the port of an http or https URL.
func portOf(u *url.URL) (uint16, error) {
	if u.Port() == "" {
		if u.Scheme == "http" {
			return 80, nil
		}
		return 443, nil
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || n == 0 {
		return 0, errPort
	}
	return uint16(n), nil
}

// hostKey is the key of the host and port in the context of Config.Allow.
type hostKey struct{}

// withHost returns a context that names the host and port of an address.
func withHost(ctx context.Context, address string) context.Context {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, hostKey{}, [2]string{normal(host), port})
}

// hostOf returns the host and port that the context of Config.Allow names.
func hostOf(ctx context.Context) (host, port string) {
	at, _ := ctx.Value(hostKey{}).([2]string)
	return at[0], at[1]
}

// public tells public addresses from others.
var public = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(wireServer))

// isPublic reports whether an address is public.
func isPublic(ip netip.Addr) bool {
	return ip.IsValid() && ip.Zone() == "" && public.SafeAddr(ip) == nil
}
