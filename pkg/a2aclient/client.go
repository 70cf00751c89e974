// Package a2aclient is a client of agents that speak A2A. It has every operation of the
// protocol, over gRPC, HTTP+JSON and JSON-RPC in A2A 1.0, and over HTTP+JSON and JSON-RPC
// in A2A 0.3.
//
// Open reads the card of an agent and chooses one of its interfaces. The methods of Client
// are named after the operations of A2A. Requests and answers are the messages of
// gen/lf/a2a/v1 in both versions of the protocol; requests are not modified. Calls have no
// timeout of their own: they end with their context.
//
// A call fails with a *ServerError if the server answers with an error, with an
// *AnswerError if its answer breaks the protocol, and with a *TransportError if there is
// no answer or only a part of one. The client repeats no call. It only resumes streams of
// servers that have cursors, such as team-server: see Cursor and Config.Resumes.
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
	"github.com/agentteams/team-server/pkg/secret"
)

// Bindings of the protocol, as cards name them.
const (
	GRPC    = "GRPC"
	REST    = "HTTP+JSON"
	JSONRPC = "JSONRPC"
)

// Versions of the protocol.
const (
	V1  = "1.0"
	V03 = "0.3"
)

// Limits of what is read from a server, in bytes. More is an error of the kind ErrTooLarge.
const (
	// MaxAnswer is the limit of an answer, and of one event of a stream.
	MaxAnswer = 16 << 20
	// MaxCard is the limit of a card.
	MaxCard = 256 << 10
)

// Config configures a Client. With the zero value a Client calls the first interface of
// the card that this package supports, without credentials.
type Config struct {
	// Bindings are the bindings to use, the preferred one first. Nil means all, in the
	// order of the card.
	Bindings []string
	// Version is V1 or V03. Empty means 1.0 if the card offers it, else 0.3.
	Version string
	// Tenant is the agent to call among those of a server; empty means the one that the
	// interface names. An interface whose URL leads to another agent is only chosen if the
	// card offers no better one: compare Client.Bound. A2A 0.3 has no tenants.
	Tenant string

	// Token is sent with each call as a bearer token. Tokens are sent in its place; a call that
	// is refused with one of them is made once more, with a new one, unless it is a stream over
	// gRPC. Header is sent with each call as
	// HTTP headers or, over gRPC, as metadata; a header replaces one of the same name that
	// the package sets. Token and Header are sent to the host and port of the card and to
	// Origins only, and without TLS only if the card was read without TLS. If either is
	// set, other interfaces are not used.
	Token  secret.Secret
	Tokens secret.Source
	Header http.Header
	// Origins are additional origins to which Token and Header are sent, as URLs or as
	// host:port.
	Origins []string
	// AnyGRPCPort allows that Token and Header are sent to gRPC interfaces at every port
	// of the card's host.
	AnyGRPCPort bool

	// Extensions are the URIs of the protocol extensions that each call activates.
	Extensions []string
	// Verifier verifies the cards that are read; nil accepts every card. With a Verifier
	// Open rejects addresses that have no card.
	Verifier Verifier
	// Resumes is how many times in a row the client tries to resume a stream that ended
	// early, before the stream yields its error. Each response with a newer cursor resets
	// the count. 0 means 5; a negative number turns resuming off. The first try is made at
	// once, the next after 200 ms; the pause doubles up to 5 s.
	Resumes int
	// Lenient accepts JSON-RPC responses with a wrong version or id and tasks without a
	// status, and skips the updates of other tasks in a subscription. Without Lenient each
	// of these is an *AnswerError.
	Lenient bool

	// Dial makes the connections. Nil means direct connections, or connections through
	// the proxies that the environment names (http.ProxyFromEnvironment).
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS configures connections with TLS; nil trusts the certificate authorities of the
	// system. It is not modified.
	TLS *tls.Config
	// Transport makes the HTTP calls; nil means a transport that uses Dial and TLS.
	// Client.Close closes its idle connections.
	Transport http.RoundTripper
	// Raw receives the requests and answers as they are sent, without credentials; nil
	// means none. A Client writes whole lines, one at a time. The lines of concurrent calls
	// are mixed.
	Raw io.Writer
}

// Client calls one agent. It is safe for concurrent use. Close must be called.
type Client struct {
	card    *a2av1.AgentCard
	at      *a2av1.AgentInterface
	version string
	tenant  string // of requests that name none
	bound   string // see Bound
	cfg     Config
	via     transport
}

// Open returns a client of the agent at a URL. A URL with the scheme http or https leads
// to the card as described for ReadCard, which Open reads. The URLs
// grpc://HOST:PORT/TENANT and grpcs://HOST:PORT/TENANT, the second with TLS, need no card;
// Open does not connect to them. The error is that of ReadCard or of New.
func Open(ctx context.Context, target string, cfg Config) (*Client, error) {
	if scheme, rest, _ := strings.Cut(target, "://"); scheme == "grpc" || scheme == "grpcs" {
		if cfg.Verifier != nil {
			return nil, &kindError{text: wire.Redacted(target) + " has no card to verify; open the agent by the URL of its card", kind: ErrUntrusted}
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

// New returns a client of the agent with a card; address is the URL of the card. New does
// not verify the card: ReadCard does. The client connects at its first call. The error is
// that of Choose.
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

// connect returns the transport for an interface; card is the URL of its card.
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

// Card returns the agent's card, which must not be modified; nil if the client was opened
// without one.
func (c *Client) Card() *a2av1.AgentCard { return c.card }

// Binding returns the binding in use: GRPC, REST or JSONRPC.
func (c *Client) Binding() string { return c.at.GetProtocolBinding() }

// Version returns the version of the protocol in use: V1 or V03.
func (c *Client) Version() string { return c.version }

// Bound returns the tenant that is part of the URL of the interface. All requests go to
// this tenant, even if they name another one. Bound returns "" if the tenant of a request
// is used.
func (c *Client) Bound() string { return c.bound }

// Conn returns the connection of a client that calls over gRPC, for other services of the
// server, such as health checks; nil for a client that calls over HTTP. Calls on it carry
// neither credentials nor headers of Config.
func (c *Client) Conn() grpc.ClientConnInterface {
	if g, ok := c.via.(*grpcTransport); ok {
		return g.conn
	}
	return nil
}

// Close closes the connections of the client. Calls in progress over gRPC fail; those over
// HTTP end as usual.
func (c *Client) Close() error { return c.via.close() }
