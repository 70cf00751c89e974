package a2aclient

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/wire"
)

// Reasons for not using an interface.
const (
	// UnknownVersion means that the version of the interface is not supported over its
	// binding, or is not Config.Version.
	UnknownVersion Why = iota + 1
	// UnknownBinding means that the binding is not supported.
	UnknownBinding
	// Elsewhere means that the credentials must not be sent to the interface.
	Elsewhere
	// BadAddress means that the binding cannot call the URL, or that the URL has a user.
	BadAddress
	// OtherBinding means that the binding is not among Config.Bindings.
	OtherBinding
)

// Why is the reason for which an interface is not used.
type Why int

// Refusal is an interface of a card that is not used, and the reason.
type Refusal struct {
	Interface *a2av1.AgentInterface
	Why       Why
}

// InterfaceError is the error for a card that has no interface that can be used.
type InterfaceError struct {
	// Refusals has all interfaces of the card, in its order.
	Refusals []Refusal

	wanted string // for people
}

// Error lists the interfaces of the card, and describes those that were wanted.
func (e *InterfaceError) Error() string {
	var offered []string
	var hint string
	for _, r := range e.Refusals {
		offer := r.Interface.GetProtocolBinding() + " " + r.Interface.GetProtocolVersion()
		switch r.Why {
		case Elsewhere:
			offer += " at " + wire.Redacted(r.Interface.GetUrl()) + " (must not see the token or headers)"
			hint = "; the token and headers are sent only to the host of the given URL; to use the host of the card, give its URL, if you trust it"
		case BadAddress:
			offer += fmt.Sprintf(" at %q, which is not a valid address", wire.Redacted(r.Interface.GetUrl()))
		case UnknownVersion, UnknownBinding, OtherBinding:
		}
		offered = append(offered, offer)
	}
	offers := "nothing"
	if len(offered) > 0 {
		offers = "only " + strings.Join(offered, ", ")
	}
	return fmt.Sprintf("card read, but it offers %s; wanted %s%s", offers, e.wanted, hint)
}

// wanted describes the interfaces that a Client with cfg can use.
func (cfg Config) wanted() string {
	current, old := "protocol 1.0 over GRPC, HTTP+JSON or JSONRPC", "0.3 over HTTP+JSON or JSONRPC"
	if len(cfg.Bindings) > 0 {
		names := strings.Join(cfg.Bindings, " or ")
		current, old = "protocol 1.0 over "+names, "0.3 over "+names
	}
	switch {
	case cfg.Version == V03:
		return "protocol " + old
	case cfg.Version == V1 || slices.Equal(cfg.Bindings, []string{GRPC}):
		return current
	}
	return current + ", or " + old
}

// Choose returns the interface of a card that New calls; address is the URL of the card.
// It prefers 1.0 to 0.3, then an interface that leads to Config.Tenant, then the order of
// Config.Bindings, then that of the card. The error is an *InterfaceError if the card has
// no interface that can be used.
func Choose(card *a2av1.AgentCard, address string, cfg Config) (*a2av1.AgentInterface, error) {
	from, err := parseCardURL(address)
	if err != nil {
		return nil, err
	}
	return cfg.choose(card, from)
}

func parseCardURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, noAddress(address, "the URL of the card")
	}
	return u, nil
}

func (cfg Config) choose(card *a2av1.AgentCard, from *url.URL) (*a2av1.AgentInterface, error) {
	var best *a2av1.AgentInterface
	var rank int
	none := &InterfaceError{wanted: cfg.wanted()}
	for _, i := range card.GetSupportedInterfaces() {
		if why := cfg.refuses(i, from); why != 0 {
			none.Refusals = append(none.Refusals, Refusal{i, why})
			continue
		}
		if r := cfg.rank(card, i); best == nil || r < rank {
			best, rank = i, r
		}
	}
	if best == nil {
		return nil, none
	}
	return best, nil
}

// rank returns the rank of an interface of a card. The interface with the lowest rank is
// the best.
func (cfg Config) rank(card *a2av1.AgentCard, i *a2av1.AgentInterface) int {
	rank := max(0, slices.Index(cfg.Bindings, i.GetProtocolBinding()))
	if to := boundTo(card, i); cfg.Tenant != "" && to != "" && to != cfg.Tenant {
		rank += 1 << 10
	}
	if a2av03.Is(i.GetProtocolVersion()) {
		rank += 1 << 20
	}
	return rank
}

// refuses returns why an interface is not used; 0 if it can be used.
func (cfg Config) refuses(i *a2av1.AgentInterface, card *url.URL) Why {
	binding := i.GetProtocolBinding()
	switch {
	case !cfg.speaks(i):
		return UnknownVersion
	case binding != GRPC && binding != REST && binding != JSONRPC:
		return UnknownBinding
	case !cfg.trusts(i, card):
		return Elsewhere
	case !hasAddress(i):
		return BadAddress
	case len(cfg.Bindings) > 0 && !slices.Contains(cfg.Bindings, binding):
		return OtherBinding
	}
	return 0
}

// speaks reports whether the version of an interface is supported over its binding.
func (cfg Config) speaks(i *a2av1.AgentInterface) bool {
	if a2av03.Is(i.GetProtocolVersion()) {
		return cfg.Version != V1 && i.GetProtocolBinding() != GRPC
	}
	return cfg.Version != V03 && strings.HasPrefix(i.GetProtocolVersion(), "1.")
}

// hasAddress reports whether the URL of an interface is one that its binding can call.
func hasAddress(i *a2av1.AgentInterface) bool {
	if i.GetProtocolBinding() == GRPC {
		hostPort, _ := grpcAddress(i.GetUrl(), &url.URL{})
		return hostPort != ""
	}
	u, err := url.Parse(i.GetUrl())
	return err == nil && u.Host != "" && u.User == nil && (u.Scheme == "http" || u.Scheme == "https")
}

// trusts reports whether the credentials may be sent to an interface: Config has no credentials, or the interface
// is at one of the trusted origins and uses TLS if the card was read over TLS.
func (cfg Config) trusts(i *a2av1.AgentInterface, card *url.URL) bool {
	if cfg.Token.IsZero() && cfg.Tokens == nil && len(cfg.Header) == 0 {
		return true
	}
	at, secure := place(i, card)
	if at == "" || card.Scheme == "https" && !secure {
		return false
	}
	if at == egress.HostPort(card) {
		return true
	}
	if host, _, err := net.SplitHostPort(at); cfg.AnyGRPCPort && i.GetProtocolBinding() == GRPC && err == nil && host == strings.ToLower(card.Hostname()) {
		return true
	}
	return slices.ContainsFunc(cfg.Origins, func(origin string) bool {
		if u, err := url.Parse(origin); err == nil && u.Host != "" {
			origin = egress.HostPort(u)
		}
		return strings.ToLower(origin) == at
	})
}

// place returns the host and port of an interface, and whether it is called with TLS;
// empty if it has none.
func place(i *a2av1.AgentInterface, card *url.URL) (hostPort string, secure bool) {
	if i.GetProtocolBinding() == GRPC {
		return grpcAddress(i.GetUrl(), card)
	}
	u, err := url.Parse(i.GetUrl())
	if err != nil {
		return "", false
	}
	return egress.HostPort(u), u.Scheme == "https"
}

// grpcAddress returns HOST:PORT of a gRPC interface, and whether it is called with TLS: an
// address without a scheme is called as the card was. hostPort is empty if address leads to
// anything other than a host, such as a socket of this machine: gRPC knows more kinds of
// addresses, which a card must not choose.
func grpcAddress(address string, card *url.URL) (hostPort string, secure bool) {
	address = strings.TrimPrefix(address, "dns:///")
	bare := !strings.Contains(address, "://")
	if bare {
		address = "//" + address
	}
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Hostname() == "", u.User != nil, bare && strings.Trim(u.Path, "/") != "":
		return "", false
	case strings.Contains(u.Hostname(), ":") && !strings.HasPrefix(u.Host, "["): // no IPv6 address
		return "", false
	}
	switch u.Scheme {
	case "":
		secure = card.Scheme == "https"
	case "https", "grpcs":
		secure = true
	case "http", "grpc":
	default:
		return "", false
	}
	return egress.HostPort(u), secure
}

// boundTo returns the tenant of a card that is part of an interface's URL; empty if the
// URL has none. A client of an HTTP+JSON interface that has a tenant field adds that
// tenant to the URL of each request.
func boundTo(card *a2av1.AgentCard, i *a2av1.AgentInterface) string {
	u, err := url.Parse(i.GetUrl())
	if err != nil || i.GetProtocolBinding() == GRPC || i.GetProtocolBinding() == REST && i.GetTenant() != "" {
		return ""
	}
	segments := strings.Split(u.Path, "/")
	for _, other := range card.GetSupportedInterfaces() {
		if t := other.GetTenant(); t != "" && slices.Contains(segments, t) {
			return t
		}
	}
	return ""
}
