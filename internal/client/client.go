// Package client calls any A2A server for a person at a terminal, over each of
// the three bindings, and shows what goes over the wire when asked to. Agents
// that a team works with are called by pkg/remote.
package client

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// The bindings as cards name them.
const (
	GRPC    = "GRPC"
	REST    = "HTTP+JSON"
	JSONRPC = "JSONRPC"
)

// Config configures a Client; the zero value is usable.
type Config struct {
	// Binding is one of the constants above; empty takes the card's first that is known.
	Binding string
	// Token is sent as bearer token to the host of the URL, and to nobody else.
	Token string
	// Raw gets what goes over the wire, line by line; nil shows nothing.
	Raw io.Writer
	// Extensions are the URIs of protocol extensions to activate.
	Extensions []string
}

// Client calls one agent of one server. Safe for concurrent use, except that
// what Raw gets is mixed.
type Client struct {
	// Card is what the agent says of itself; nil where none was needed.
	Card *a2av1.AgentCard
	// Binding in use.
	Binding string

	tenant string
	via    transport
}

// transport is a binding.
type transport interface {
	send(context.Context, *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error)
	stream(context.Context, *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error]
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
		return &Client{Binding: GRPC, tenant: tenant, via: via}, err
	}
	card, _, err := w.card(ctx, target)
	if err != nil {
		return nil, err
	}
	i, err := choose(card, cfg.Binding)
	if err != nil {
		return nil, err
	}
	via, err := w.connect(i, target)
	if err != nil {
		return nil, err
	}
	return &Client{Card: card, Binding: i.GetProtocolBinding(), tenant: i.GetTenant(), via: via}, nil
}

func cutScheme(target string, schemes ...string) (string, bool) {
	for _, s := range schemes {
		if rest, ok := strings.CutPrefix(target, s+"://"); ok {
			return rest, true
		}
	}
	return "", false
}

// choose picks the interface to use.
func choose(card *a2av1.AgentCard, binding string) (*a2av1.AgentInterface, error) {
	var offered []string
	for _, i := range card.GetSupportedInterfaces() {
		offered = append(offered, i.GetProtocolBinding()+" "+i.GetProtocolVersion())
		known := i.GetProtocolBinding() == GRPC || i.GetProtocolBinding() == REST || i.GetProtocolBinding() == JSONRPC
		if known && strings.HasPrefix(i.GetProtocolVersion(), "1.") && (binding == "" || binding == i.GetProtocolBinding()) {
			return i, nil
		}
	}
	want := "protocol 1.0 over GRPC, HTTP+JSON or JSONRPC"
	if binding != "" {
		want = "protocol 1.0 over " + binding
	}
	return nil, fmt.Errorf("card read, but it offers only %s; wanted %s", strings.Join(offered, ", "), want)
}

// connect returns the binding of an interface. The token goes along only where
// the host is the one that was named.
func (w *web) connect(i *a2av1.AgentInterface, target string) (transport, error) {
	if !sameHost(i.GetUrl(), target) {
		w.cfg.Token = ""
	}
	if i.GetProtocolBinding() == GRPC {
		address, secure := grpcAddress(i.GetUrl(), target)
		return newGRPC(address, secure, w)
	}
	base := strings.TrimSuffix(i.GetUrl(), "/")
	if i.GetProtocolBinding() == REST {
		return &rest{web: w, base: base, tenant: i.GetTenant()}, nil
	}
	return &jsonrpc{web: w, url: base}, nil
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

func sameHost(a, b string) bool { return hostOf(a) == hostOf(b) }

func hostOf(s string) string {
	if !strings.Contains(s, "://") {
		s = "any://" + s
	}
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// Send sends a message and waits for the answer.
func (c *Client) Send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	return c.via.send(ctx, c.addressed(req))
}

// Stream sends a message and yields what comes, until the task rests.
func (c *Client) Stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return c.via.stream(ctx, c.addressed(req))
}

func (c *Client) addressed(req *a2av1.SendMessageRequest) *a2av1.SendMessageRequest {
	if req.GetTenant() != "" || c.tenant == "" {
		return req
	}
	req = proto.CloneOf(req)
	req.Tenant = c.tenant
	return req
}

// Close closes the connection.
func (c *Client) Close() error { return c.via.close() }

// ReadCard reads the card at a URL, or the one below it. raw is its JSON.
func ReadCard(ctx context.Context, target string, cfg Config) (card *a2av1.AgentCard, raw []byte, err error) {
	return newWeb(cfg).card(ctx, target)
}

func (w *web) card(ctx context.Context, target string) (card *a2av1.AgentCard, raw []byte, err error) {
	if raw, err = w.cardJSON(ctx, target); err != nil {
		return nil, nil, err
	}
	card = &a2av1.AgentCard{}
	if err := wire.Unmarshal(raw, card); err != nil {
		return nil, raw, fmt.Errorf("%s is no A2A 1.0 card: %w", target, err)
	}
	return card, raw, nil
}

const wellKnown = "/.well-known/agent-card.json"

func (w *web) cardJSON(ctx context.Context, target string) ([]byte, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, noAddress(target, "http://HOST/…, https://HOST/… or grpc://HOST:PORT/TENANT")
	}
	if !strings.HasSuffix(u.Path, ".json") {
		target = strings.TrimSuffix(target, "/") + wellKnown
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, noAddress(target, "http://HOST/…")
	}
	resp, err := w.do(req, nil)
	if err != nil {
		return nil, err
	}
	defer done(resp)
	data, err := w.read(resp)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("no card at %s: %w", target, refused(wire.ParseRESTError(resp.StatusCode, data)))
	}
	return data, nil
}
