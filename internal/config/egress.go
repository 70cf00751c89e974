package config

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/agentteams/team-server/internal/egress"
)

// EgressAllow returns the entries for egress.NewGuard: the addresses that are not public and to
// which connections may lead whose address callers or cards have named.
func (c *Config) EgressAllow() []string {
	allow := c.Server.GetServer().GetEgress().GetAllow()
	if c.Loopback() {
		return append(egress.Loopback(), allow...)
	}
	return allow
}

// Loopback reports whether the loader lets additions name addresses of this machine.
func (c *Config) Loopback() bool { return c.loader.Loopback }

// AddressInFile reports whether the address of a remote agent stands in the configuration file, rather
// than in an addition.
func (c *Config) AddressInFile(id string) bool { return c.additions[id] == "" && !c.restored[id] }

// egress checks the entries of server.egress.allow, and the addresses in additions.
func (k *checker) egress() {
	allow := k.Server.GetServer().GetEgress().GetAllow()
	for i, entry := range allow {
		if err := egress.CheckEntry(entry); err != nil {
			n, _ := k.at("server", "egress", "allow", i)
			what, instead, _ := strings.Cut(err.Error(), "; ")
			k.fault(n, "this entry of egress.allow "+what, instead)
		}
	}
	guard, err := egress.NewGuard(k.EgressAllow()...)
	if err != nil { // reported above
		return
	}
	for _, id := range sorted(k.Server.GetAgents()) {
		a := k.Server.GetAgents()[id]
		if k.additions[id] == "" {
			continue
		}
		if host, port, err := splitCard(a.GetA2A().GetCard()); err == nil && a.GetA2A() != nil {
			k.reachable(guard, host, port, "card", "agents", id, "a2a", "card")
		}
		if host, port, err := splitAddress(a.GetGrpc().GetAddress()); err == nil && a.GetGrpc() != nil {
			k.reachable(guard, host, port, "address", "agents", id, "grpc", "address")
		}
	}
}

// reachable reports an address of an addition to which no connection would be made.
func (k *checker) reachable(guard *egress.Guard, host string, port uint16, what string, path ...any) {
	n, _ := k.at(path...)
	if err := guard.Host(host, port); err != nil && !k.isDamaged(path...) && !k.hasFault(n) {
		why, instead, _ := strings.Cut(err.Error(), "; ")
		k.fault(n, what+" "+why, instead)
	}
}

// splitCard returns the host and port of the URL of a card or tool. The error follows the name of a
// key.
func splitCard(raw string) (host string, port uint16, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return "", 0, fmt.Errorf("is not a valid address")
	}
	digits := u.Port()
	if digits == "" {
		digits = map[string]string{"http": "80"}[u.Scheme]
	}
	if digits == "" {
		digits = "443"
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("has an invalid port")
	}
	return u.Hostname(), uint16(n), nil
}

// splitAddress returns the host and port of the address of a gRPC agent. The error follows the name
// of a key.
func splitAddress(address string) (host string, port uint16, err error) {
	host, digits, err := net.SplitHostPort(strings.TrimPrefix(address, "dns:///"))
	if err != nil || host == "" || strings.ContainsAny(host, "@/?#%") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", 0, fmt.Errorf("is not HOST:PORT")
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("has an invalid port")
	}
	return host, uint16(n), nil
}

// inClear reports whether a connection without TLS to a host may be read on its way.
func inClear(host string) bool {
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}
