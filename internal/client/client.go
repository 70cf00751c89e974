// Package client calls any A2A server for a person at a terminal: every operation,
// over each of the three bindings, in A2A 1.0 and, over HTTP, in 0.3; and shows what
// goes over the wire when asked to. Agents that a team works with are called by
// pkg/remote.
package client

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/wire"
)

// The bindings as cards name them.
const (
	GRPC    = "GRPC"
	REST    = "HTTP+JSON"
	JSONRPC = "JSONRPC"
)

// The versions of the protocol.
const (
	V10 = "1.0"
	V03 = a2av03.Version
)

// Config configures a Client; the zero value is usable.
type Config struct {
	// Binding is one of the constants above; empty takes the card's first that is known.
	Binding string
	// Tenant is the agent to reach; empty means the card's. An interface of 1.0 whose URL
	// names another agent is only chosen if there is no better one.
	Tenant string
	// Version is V10 or V03; empty takes 1.0 where the card offers it, else 0.3.
	Version string
	// Token is sent as bearer token to the host and port of the URL, and nowhere else;
	// what a card that came over https offers without TLS counts as elsewhere. With a
	// Token or Headers, interfaces elsewhere are not used.
	Token string
	// Headers are sent along, over gRPC as metadata; where the Token is.
	Headers http.Header
	// Raw gets what goes over the wire, line by line, without secrets; nil shows
	// nothing.
	Raw io.Writer
	// Extensions are the URIs of protocol extensions to activate.
	Extensions []string
	// Verify returns what is believed of a card, which is all that is used of it; an
	// error is for a card that nobody trusted has signed. nil believes every card.
	Verify func(*a2av1.AgentCard) (*a2av1.AgentCard, error)
}

// Client calls one agent of one server. Safe for concurrent use, except that
// what Raw gets is mixed.
type Client struct {
	// Card is what the agent says of itself; nil where none was needed.
	Card *a2av1.AgentCard
	// Binding and Version in use.
	Binding, Version string

	tenant string
	bound  string // see Bound
	verify func(*a2av1.AgentCard) (*a2av1.AgentCard, error)
	via    transport
}

// transport is a binding in a version. Errors are those of a person's client: in
// words, and of a kind.
type transport interface {
	send(context.Context, *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error)
	stream(context.Context, *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error]
	task(context.Context, *a2av1.GetTaskRequest) (*a2av1.Task, error)
	tasks(context.Context, *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error)
	cancel(context.Context, *a2av1.CancelTaskRequest) (*a2av1.Task, error)
	// subscribe follows a task, behind a cursor if after is not 0.
	subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error]
	setPush(context.Context, *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error)
	push(context.Context, *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error)
	pushes(context.Context, *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error)
	deletePush(context.Context, *a2av1.DeleteTaskPushNotificationConfigRequest) error
	extendedCard(context.Context, *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error)
	close() error
}

// Open finds out how the agent at a URL is called: by its card, at the URL
// itself or below it, or, with grpc://HOST:PORT/TENANT, without one.
func Open(ctx context.Context, target string, cfg Config) (*Client, error) {
	w := newWeb(cfg)
	if rest, ok := cutScheme(target, "grpc", "grpcs"); ok {
		host, tenant, _ := strings.Cut(rest, "/")
		if u, err := url.Parse("grpc://" + host); err != nil || u.Host == "" {
			return nil, noAddress(target, "grpc://HOST:PORT/TENANT")
		}
		via, err := newGRPC(host, strings.HasPrefix(target, "grpcs"), w)
		if err != nil {
			return nil, err
		}
		return &Client{Binding: GRPC, Version: V10, tenant: tenant, verify: cfg.Verify, via: via}, nil
	}
	card, _, err := w.card(ctx, target)
	if err != nil {
		return nil, err
	}
	i, err := cfg.choose(card, target)
	if err != nil {
		return nil, err
	}
	via, err := w.connect(i, target)
	if err != nil {
		return nil, err
	}
	c := &Client{Card: card, Binding: i.GetProtocolBinding(), Version: V10, tenant: i.GetTenant(), bound: boundTo(card, i), verify: cfg.Verify, via: via}
	if a2av03.Is(i.GetProtocolVersion()) {
		c.Version, c.tenant = V03, "" // the tenant is part of the address
	}
	return c, nil
}

func cutScheme(target string, schemes ...string) (string, bool) {
	for _, s := range schemes {
		if rest, ok := strings.CutPrefix(target, s+"://"); ok {
			return rest, true
		}
	}
	return "", false
}

// choose picks the interface to use: the first of 1.0 that leads to the tenant, else
// the first of 1.0, else the first of 0.3. target is the address of the card.
func (cfg Config) choose(card *a2av1.AgentCard, target string) (*a2av1.AgentInterface, error) {
	var offered []string
	var hint string
	var elsewhere, old *a2av1.AgentInterface
	for _, i := range card.GetSupportedInterfaces() {
		binding, version := i.GetProtocolBinding(), i.GetProtocolVersion()
		if cfg.withholds(i, target) {
			offered = append(offered, binding+" "+version+" at "+i.GetUrl()+" (must not see the token or headers)")
			hint = "; token and headers go to the host that is named: call the agent by the one on its card, if you trust that"
			continue
		}
		offered = append(offered, binding+" "+version)
		switch {
		case cfg.Binding != "" && cfg.Binding != binding, binding != GRPC && binding != REST && binding != JSONRPC:
		case strings.HasPrefix(version, "1.") && cfg.Version != V03:
			if to := boundTo(card, i); cfg.Tenant == "" || to == "" || to == cfg.Tenant {
				return i, nil
			}
			elsewhere = cmp.Or(elsewhere, i)
		case a2av03.Is(version) && cfg.Version != V10 && binding != GRPC && old == nil:
			old = i
		}
	}
	if found := cmp.Or(elsewhere, old); found != nil {
		return found, nil
	}
	offers := "nothing"
	if len(offered) > 0 {
		offers = "only " + strings.Join(offered, ", ")
	}
	return nil, fmt.Errorf("card read, but it offers %s; wanted %s%s", offers, cfg.wanted(), hint)
}

// wanted is what a card has to offer.
func (cfg Config) wanted() string {
	current, old := "protocol 1.0 over GRPC, HTTP+JSON or JSONRPC", "0.3 over HTTP+JSON or JSONRPC"
	if cfg.Binding != "" {
		current, old = "protocol 1.0 over "+cfg.Binding, "0.3 over "+cfg.Binding
	}
	switch {
	case cfg.Version == V03:
		return "protocol " + old
	case cfg.Version == V10 || cfg.Binding == GRPC:
		return current
	}
	return current + ", or " + old
}

// withholds reports whether there are secrets that an interface must not see: it is
// not at the host that was named, over HTTP also at its port, or less protected.
func (cfg Config) withholds(i *a2av1.AgentInterface, target string) bool {
	if cfg.Token == "" && len(cfg.Headers) == 0 {
		return false
	}
	named, err := url.Parse(target)
	if err != nil {
		return true
	}
	at, secure := place(i, target)
	same := at == wire.HostPort(named)
	if i.GetProtocolBinding() == GRPC { // has a port of its own most often
		host, _, _ := net.SplitHostPort(at)
		same = host == strings.ToLower(named.Hostname())
	}
	return !same || named.Scheme == "https" && !secure
}

// place is the host and port of an interface, and whether it is called with TLS.
func place(i *a2av1.AgentInterface, target string) (hostPort string, secure bool) {
	if i.GetProtocolBinding() == GRPC {
		address, secure := grpcAddress(i.GetUrl(), target)
		return wire.HostPort(&url.URL{Host: address}), secure // without a port 443, as gRPC has it
	}
	u, err := url.Parse(i.GetUrl())
	if err != nil {
		return "", false
	}
	return wire.HostPort(u), u.Scheme == "https"
}

// connect returns the binding of an interface.
func (w *web) connect(i *a2av1.AgentInterface, target string) (transport, error) {
	base := strings.TrimSuffix(i.GetUrl(), "/")
	w.version = V10
	if a2av03.Is(i.GetProtocolVersion()) {
		w.version = V03
		if i.GetProtocolBinding() == REST {
			return newREST03(w, base), nil
		}
		return newJSONRPC03(w, base), nil
	}
	switch i.GetProtocolBinding() {
	case GRPC:
		address, secure := grpcAddress(i.GetUrl(), target)
		return newGRPC(address, secure, w)
	case REST:
		return newREST(w, base), nil
	}
	return newJSONRPC(w, base), nil
}

// grpcAddress is HOST:PORT of a gRPC interface, and whether it wants TLS: where
// it does not say so itself, when the card came that way.
func grpcAddress(address, target string) (hostPort string, secure bool) {
	hostPort, secure = address, strings.HasPrefix(target, "https://")
	if rest, ok := cutScheme(address, "https", "grpcs"); ok {
		hostPort, secure = rest, true
	}
	if rest, ok := cutScheme(address, "http", "grpc"); ok {
		hostPort, secure = rest, false
	}
	return strings.TrimSuffix(hostPort, "/"), secure
}

// Bound returns the tenant that the URL of the binding leads to, whatever a request
// names; empty where the request decides.
func (c *Client) Bound() string { return c.bound }

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

// Close closes the connection.
func (c *Client) Close() error { return c.via.close() }
