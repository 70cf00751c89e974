// Package auth says who makes a call: from API keys, tokens of OpenID Connect issuers, and
// client certificates.
package auth

import (
	"crypto/tls"
	"errors"
	"maps"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Request is what a call shows of its caller.
type Request struct {
	// Authorization has the values of its authorization headers.
	Authorization []string
	// TLS is the state of its connection, nil for one without TLS.
	TLS *tls.ConnectionState
	// From is the network address of the caller.
	From netip.Addr
	// Again says that the caller was authenticated before, and is checked again while its call
	// lasts. A refusal does not count as a guess then.
	Again bool
}

// Authenticator says who makes a call. It does no I/O, because grpc-go calls it with the lock of
// a connection held, before the message is read. Implementations are safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the caller of a request. The error is ErrNone if the request has no
	// credentials of the kind that the authenticator checks, else a *Refusal.
	Authenticate(Request) (a2a.Caller, error)
	// Holds reports whether a request of an owner can be accepted now or later, as far as the
	// authenticator knows.
	Holds(owner string) bool
}

// ErrNone says that a request has no credentials that an Authenticator checks.
var ErrNone = errors.New("no credentials of this kind")

// Reasons of refusals, for the log.
const (
	WhyMissing   = "no credentials"
	WhyMalformed = "malformed credentials"
	WhyUnknown   = "unknown key"
	WhyExpired   = "expired key"
	WhyRevoked   = "revoked key"
	// WhyCertificate is for a certificate without a name that is configured.
	WhyCertificate = "unknown certificate"
)

// Refusal is the error for credentials that are not accepted. It wraps the *agent.Error for the
// caller.
type Refusal struct {
	// Why is the reason for the log, one of few texts.
	Why string
	// Detail says more for the log, such as the name of the key. It contains no secret.
	Detail string
	// Guess says that the caller may have guessed.
	Guess bool
	err   *agent.Error
}

// Error returns the text for the caller.
func (r *Refusal) Error() string { return r.err.Error() }

// Unwrap returns the *agent.Error.
func (r *Refusal) Unwrap() error { return r.err }

// refuse returns a Refusal with UNAUTHENTICATED and a text for the caller.
func refuse(why, detail, text string) *Refusal {
	return &Refusal{Why: why, Detail: detail, err: agent.Errorf(agent.CodeUnauthenticated, agent.ReasonUnauthenticated, "%s", text)}
}

// maxToken is the maximum length of a token in bytes. It limits the work done for a caller
// that is not authenticated yet.
const maxToken = 8 << 10

// bearer returns the bearer token of a request. The error is ErrNone without an authorization
// header.
func bearer(r Request) (string, error) {
	if len(r.Authorization) == 0 {
		return "", ErrNone
	}
	scheme, token, _ := strings.Cut(r.Authorization[0], " ")
	if !strings.EqualFold(scheme, "bearer") || len(token) > maxToken {
		return "", refuse(WhyMalformed, "", "this server accepts only bearer tokens of at most 8 KiB; send the header authorization: Bearer KEY")
	}
	return strings.TrimSpace(token), nil
}

// chain asks several authenticators, and slows down callers that guess.
type chain struct {
	of      []Authenticator
	needs   string // what to send, for callers without credentials
	guesses guesses
}

// Authenticate implements Authenticator: the first one that checks the credentials of the request
// decides.
func (c *chain) Authenticate(r Request) (a2a.Caller, error) {
	if len(r.Authorization) > 1 {
		return a2a.Caller{}, refuse(WhyMalformed, "two headers", "more than one authorization header; send one")
	}
	for _, a := range c.of {
		who, err := a.Authenticate(r)
		if !errors.Is(err, ErrNone) {
			return who, c.pace(r, who, err)
		}
	}
	return a2a.Caller{}, refuse(WhyMissing, "", c.needs)
}

// pace returns err, or the error for an address that sent too many unknown keys.
func (c *chain) pace(r Request, who a2a.Caller, err error) error {
	owner := ""
	var no *Refusal
	switch {
	case r.Again || errors.As(err, &no) && !no.Guess:
		return err
	case err == nil:
		owner = who.Owner()
	}
	if wait := c.guesses.admit(r.From, owner); wait != nil {
		return &Refusal{Why: WhyUnknown, Guess: true, err: agent.AsError(wait)}
	}
	return err
}

// Holds implements Authenticator.
func (c *chain) Holds(owner string) bool {
	for _, a := range c.of {
		if a.Holds(owner) {
			return true
		}
	}
	return false
}

// Config configures the authentication of a server.
type Config struct {
	// Keys are the API keys of the configuration.
	Keys []APIKey
	// Clients are those that are known by their certificates, which Certificates accepts.
	Clients      []CertificateClient
	Certificates *Certificates
	// Issuers are issuers of tokens that are accepted.
	Issuers []Issuer
	// Store has the keys that were made by the API; nil means that there are no others.
	Store Store
	// Clock returns the time at which keys expire, which is that of Store; nil means time.Now.
	Clock func() time.Time
	// Log receives lines about addresses that guess; nil means no log.
	Log *zap.Logger
}

// Server authenticates the callers of a server.
type Server struct {
	chain
	keys   *Keys
	tokens *tokens // nil without issuers
	store  Store   // may be nil
	log    *zap.Logger
	busy   chan struct{} // holds a value while Refresh runs
	read   atomic.Int64  // when the keys of the store were last read, in Unix milliseconds
}

// New returns the authentication of a server, nil if it accepts every caller. The error names what
// is wrong with the configuration.
func New(c Config) (*Server, error) {
	if len(c.Keys) == 0 && len(c.Clients) == 0 && len(c.Issuers) == 0 {
		return nil, nil //nolint:nilnil // every caller is accepted
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	s := &Server{store: c.Store, log: c.Log, busy: make(chan struct{}, 1)}
	s.guesses.log = c.Log
	var err error
	var needs []string
	if s.keys, err = NewKeys(c.Keys); err != nil {
		return nil, err
	}
	if c.Clock != nil {
		s.keys.clock = c.Clock
	}
	if len(c.Issuers) > 0 { // first, because Keys refuses every bearer token that it does not know
		s.tokens, err = newTokens(c.Issuers, func(i Issuer) (*issuerKeys, error) { return newIssuerKeys(i, c.Log) })
		if err != nil {
			return nil, err
		}
		s.tokens.waits = s.guesses.waits
		s.of, needs = append(s.of, s.tokens), append(needs, "a token of one of its issuers; send the header authorization: Bearer TOKEN")
	}
	s.of = append(s.of, s.keys)
	if len(c.Keys) > 0 {
		needs = append(needs, "an API key; send the header authorization: Bearer KEY")
	}
	if len(c.Clients) > 0 {
		m, err := newMTLS(c.Clients, c.Certificates)
		if err != nil {
			return nil, err
		}
		s.of, needs = append(s.of, m), append(needs, "a client certificate; connect with one")
	}
	s.needs = "this server requires " + strings.Join(needs, ", or ")
	return s, nil
}

// staleAfter is how long the keys of the store are known well enough to end rights.
const staleAfter = 2 * pollInterval

// Ended returns the owners who had a right to call, and have none any more: all of their keys have
// expired or were revoked. The value says that one of these keys is in the store, which all replicas
// know; the others are only in the configuration of this one. fresh is false while the keys of the store
// cannot be read. Server may be nil.
func (s *Server) Ended() (owners map[string]bool, fresh bool) {
	if s == nil {
		return nil, false
	}
	if s.store != nil && time.Since(time.UnixMilli(s.read.Load())) > staleAfter {
		return nil, false
	}
	owners = s.keys.ended()
	maps.DeleteFunc(owners, func(owner string, _ bool) bool { return s.Holds(owner) })
	return owners, true
}

// Flush logs what is known of addresses that guess, when the server stops.
func (s *Server) Flush() {
	if s != nil {
		s.guesses.flush()
	}
}
