// Package a2aclient calls agents over A2A: every operation of the protocol, over gRPC,
// HTTP+JSON and JSON-RPC in A2A 1.0, and over HTTP+JSON and JSON-RPC in A2A 0.3.
//
// Open reads the card of an agent and chooses one of its interfaces. Requests and answers
// are the messages of gen/lf/a2a/v1, in both versions of the protocol. A stream whose
// connection breaks goes on behind its cursor where the server has cursors, see
// Config.Resumes.
//
// What a server refuses is a *ServerError, an answer that breaks the protocol is an
// *AnswerError, and a call without an answer is a *TransportError.
package a2aclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/wire"
)

// The bindings, as cards name them.
const (
	GRPC    = "GRPC"
	REST    = "HTTP+JSON"
	JSONRPC = "JSONRPC"
)

// The versions of the protocol.
const (
	V1  = "1.0"
	V03 = "0.3"
)

// Limits of what is read of a server, in bytes.
const (
	// MaxAnswer bounds one answer, and one event of a stream.
	MaxAnswer = 16 << 20
	// MaxCard bounds a card.
	MaxCard = 256 << 10
)

// Config configures a Client. The zero value calls the first interface of the card that
// is known, without credentials.
type Config struct {
	// Bindings are the bindings to use, the preferred one first; others are not used.
	// Nil allows all, in the order of the card.
	Bindings []string
	// Version is V1 or V03; empty takes 1.0 where the card offers it, else 0.3.
	Version string
	// Tenant is the agent to call among those of a server. Empty is the tenant of the
	// interface. An interface whose URL leads to another agent is only chosen if the card
	// offers no better one.
	Tenant string

	// Token is sent as bearer token, and Header with each call, over gRPC as metadata.
	// Both go to the host and port of the card and to Origins, and nowhere else; and
	// without TLS only if the card came without TLS. While either is set, interfaces
	// elsewhere are not used.
	Token  string
	Header http.Header
	// Origins are further places that may see Token and Header: URLs, or host:port.
	Origins []string
	// AnyGRPCPort lets gRPC interfaces at other ports of the card's host see them too.
	AnyGRPCPort bool

	// Extensions are the URIs of protocol extensions to activate.
	Extensions []string
	// Verifier decides which cards are used; nil uses every card.
	Verifier Verifier
	// Resumes is how many times in a row the client tries to resume a stream that ended
	// early, before the stream yields its error. Each response with a newer cursor resets
	// the count. 0 means 5; a negative number turns resuming off. The first try is made at
	// once, the next after 200 ms; the pause doubles up to 5 s.
	Resumes int
	// Lenient accepts answers that are faulty but can be understood: JSON-RPC responses
	// with another version or id, tasks without a status. It skips updates of other
	// tasks. Without it they are an *AnswerError.
	Lenient bool

	// Dial makes the connections; nil is the standard library's way, through the
	// proxies that the environment names.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS configures connections with TLS; nil trusts the authorities of the system.
	TLS *tls.Config
	// Transport makes HTTP calls in place of one that is built from Dial and TLS. Close
	// closes its idle connections.
	Transport http.RoundTripper
	// Raw gets what goes over the wire, line by line and without credentials; nil shows
	// nothing. Lines of concurrent calls are mixed.
	Raw io.Writer
}

// Client calls one agent. Safe for concurrent use.
type Client struct {
	card    *a2av1.AgentCard
	at      *a2av1.AgentInterface
	version string
	tenant  string // of requests that name none
	bound   string // see Bound
	cfg     Config
	via     transport
}

// Open returns a client of the agent at a URL: that of its card, which ends in .json, the
// one below which its card is at /.well-known/agent-card.json, or grpc://HOST:PORT/TENANT
// and grpcs://HOST:PORT/TENANT, which need no card.
func Open(ctx context.Context, target string, cfg Config) (*Client, error) {
	if scheme, rest, _ := strings.Cut(target, "://"); scheme == "grpc" || scheme == "grpcs" {
		if cfg.Verifier != nil {
			return nil, &kindError{text: wire.WithoutUser(target) + " has no card to verify; open the agent by the URL of its card", kind: ErrUntrusted}
		}
		host, tenant, _ := strings.Cut(rest, "/")
		address, secure := grpcAddress(scheme+"://"+host, nil)
		if address == "" {
			return nil, noAddress(target, "grpc://HOST:PORT/TENANT")
		}
		via, err := newGRPC(newWeb(cfg, V1), address, secure)
		if err != nil {
			return nil, err
		}
		at := &a2av1.AgentInterface{Url: host, ProtocolBinding: GRPC, ProtocolVersion: V1, Tenant: tenant}
		return &Client{at: at, version: V1, tenant: cmp.Or(cfg.Tenant, tenant), cfg: cfg, via: via}, nil
	}
	cfg.Transport = cfg.transport() // the same for the card and for calls
	card, _, err := ReadCard(ctx, target, cfg)
	var c *Client
	if err == nil {
		c, err = New(card, target, cfg)
	}
	if err != nil {
		_ = newWeb(cfg, V1).close()
		return nil, err
	}
	return c, nil
}

// New returns a client of the agent with a card, which was read from a URL. It uses the
// card as it is, without Config.Verifier. It connects at the first call.
func New(card *a2av1.AgentCard, address string, cfg Config) (*Client, error) {
	from, err := parseCardURL(address)
	if err != nil {
		return nil, err
	}
	at, err := cfg.choose(card, from)
	if err != nil {
		return nil, err
	}
	c := &Client{card: card, at: at, version: V1, tenant: cmp.Or(cfg.Tenant, at.GetTenant()), bound: boundTo(card, at), cfg: cfg}
	if a2av03.Is(at.GetProtocolVersion()) {
		c.version, c.tenant = V03, "" // the tenant is part of the address
	}
	if c.via, err = newWeb(cfg, c.version).connect(at, from); err != nil {
		return nil, err
	}
	return c, nil
}

// connect returns the binding of an interface; card is the URL of its card.
func (w *web) connect(i *a2av1.AgentInterface, card *url.URL) (transport, error) {
	base := strings.TrimSuffix(i.GetUrl(), "/")
	switch binding := i.GetProtocolBinding(); {
	case w.version == V03 && binding == REST:
		return newREST03(w, base), nil
	case w.version == V03:
		return newJSONRPC03(w, base), nil
	case binding == REST:
		return newREST(w, base), nil
	case binding == JSONRPC:
		return newJSONRPC(w, base), nil
	}
	address, secure := grpcAddress(i.GetUrl(), card)
	return newGRPC(w, address, secure)
}

// Card is the agent's card; nil if the client was opened without one. Read only.
func (c *Client) Card() *a2av1.AgentCard { return c.card }

// Binding is the binding in use: GRPC, REST or JSONRPC.
func (c *Client) Binding() string { return c.at.GetProtocolBinding() }

// Version is the version of the protocol in use: V1 or V03.
func (c *Client) Version() string { return c.version }

// Bound returns the tenant that the URL of the interface leads to, whatever a request
// names; empty where the request decides.
func (c *Client) Bound() string { return c.bound }

// Conn is the connection of a client that calls over gRPC, for other services of the
// server, such as that of health; nil for one that calls over HTTP. Calls over it carry
// nothing of Config.
func (c *Client) Conn() grpc.ClientConnInterface {
	if g, ok := c.via.(*grpcTransport); ok {
		return g.conn
	}
	return nil
}

// Close closes the connection, or the idle ones. Calls under way over gRPC fail.
func (c *Client) Close() error { return c.via.close() }
