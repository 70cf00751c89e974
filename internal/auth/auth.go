// Package auth says who makes a call: from API keys, tokens of OpenID Connect issuers, and
// client certificates.
package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
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
	Authenticate(Request) (identity.Caller, error)
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
	// WhyToken is for a token that is not valid.
	WhyToken = "invalid token"
	// WhyNoKeys is for a token whose issuer's keys could not be fetched.
	WhyNoKeys = "keys of the issuer are missing"
	// WhyOther is for credentials that another Authenticator refused.
	WhyOther = "unknown credentials"
)

// Reasons are all reasons of refusals.
var Reasons = []string{WhyMissing, WhyMalformed, WhyUnknown, WhyExpired, WhyRevoked, WhyCertificate, WhyToken, WhyNoKeys, WhyOther}

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

// Config configures the authentication of a server.
type Config struct {
	// Accept has the API keys of the configuration, the clients that are known by their certificates, and the issuers of
	// tokens. Without any of them every caller is accepted.
	Accept *teamv1.AuthConfig
	// Certificates accepts the certificates of clients; nil means none.
	Certificates *Certificates
	// Store has the keys that were made by the API, and rights; nil means that there are no others than those that
	// were noted since New.
	Store Store
	// Clock returns the time at which keys and rights end, which is that of Store; nil means time.Now.
	Clock func() time.Time
	// Log receives lines about addresses that guess; nil means no log.
	Log *zap.Logger
}

// Server authenticates the callers of a server, and slows down those that guess.
type Server struct {
	c        Config // Accept is that of New
	guesses  guesses
	rights   *rights
	now      atomic.Pointer[accepted] // stored under mu
	reloaded chan struct{}            // holds one signal: now has changed
	busy     chan struct{}            // holds a value while Refresh runs
	read     atomic.Int64             // when the keys of the store were last read, in Unix milliseconds

	mu     sync.Mutex
	stored map[hash]entry // the keys of the store; guarded by mu
}

// accepted is what a server accepts, by its configuration.
type accepted struct {
	of     []Authenticator // the first one that checks the credentials of a request decides
	needs  string          // what to send, for callers without credentials
	keys   *apiKeys
	tokens *tokens // nil without issuers
	mtls   *mtls   // nil without clients
}

// New returns the authentication of a server, nil if it accepts every caller. The error names what
// is wrong with the configuration.
func New(c Config) (*Server, error) {
	if !Authenticates(c.Accept) {
		return nil, nil //nolint:nilnil // every caller is accepted
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	s := &Server{c: c, rights: newRights(c.Store, c.Log), reloaded: make(chan struct{}, 1), busy: make(chan struct{}, 1)}
	s.guesses.log = c.Log
	apply, err := s.Prepare(c.Accept)
	if err != nil {
		return nil, err
	}
	apply()
	return s, nil
}

// Authenticates reports whether c has anything by which callers are known.
func Authenticates(c *teamv1.AuthConfig) bool {
	return len(c.GetApiKeys())+len(c.GetMtls())+len(c.GetJwt()) > 0
}

// errBegins is the error for a configuration that would make a running server begin to authenticate its callers, or
// cease to.
var errBegins = errors.New("a running server can neither begin nor cease to authenticate its callers; to add the first entry of server.auth or remove the last one, restart it")

// Prepare returns the function that replaces Config.Accept, which the next request meets. Keys of issuers that are in both
// configurations need not be fetched again. Server may be nil.
func (s *Server) Prepare(c *teamv1.AuthConfig) (apply func(), err error) {
	if (s != nil) != Authenticates(c) {
		return nil, errBegins
	}
	if s == nil {
		return func() {}, nil
	}
	next, err := s.accept(c)
	if err != nil {
		return nil, err
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		next.keys.set(s.stored)
		s.now.Store(next)
		select {
		case s.reloaded <- struct{}{}:
		default:
		}
	}, nil
}

// accept returns what a configuration accepts.
func (s *Server) accept(c *teamv1.AuthConfig) (*accepted, error) {
	a := &accepted{}
	var err error
	var needs []string
	if a.keys, err = newAPIKeys(c.GetApiKeys()); err != nil {
		return nil, err
	}
	a.keys.clock = s.c.Clock
	if len(c.GetJwt()) > 0 { // first, because apiKeys refuses every bearer token that it does not know
		if a.tokens, err = newTokens(IssuersOf(c), s.keysOf); err != nil {
			return nil, err
		}
		a.tokens.waits, a.tokens.note = s.guesses.waits, s.rights.note
		a.of, needs = append(a.of, a.tokens), append(needs, "a token of one of its issuers; send the header authorization: Bearer TOKEN")
	}
	a.of = append(a.of, a.keys)
	if len(c.GetApiKeys()) > 0 {
		needs = append(needs, "an API key; send the header authorization: Bearer KEY")
	}
	if len(c.GetMtls()) > 0 {
		if a.mtls, err = newMTLS(c.GetMtls(), s.c.Certificates); err != nil {
			return nil, err
		}
		a.mtls.note = s.rights.note
		a.of, needs = append(a.of, a.mtls), append(needs, "a client certificate; connect with one")
	}
	a.needs = "this server requires " + strings.Join(needs, ", or ")
	return a, nil
}

// keysOf returns the keys of an issuer: those that are in use if it is fetched in the same way.
func (s *Server) keysOf(i Issuer) (*issuerKeys, error) {
	k, err := newIssuerKeys(i, s.c.Log)
	if now := s.now.Load(); err == nil && now != nil && now.tokens != nil {
		if old := now.tokens.issuers[i.URL]; old != nil && old.keys.sameSource(k) {
			return old.keys, nil
		}
	}
	return k, err
}

// Authenticate implements Authenticator.
func (s *Server) Authenticate(r Request) (identity.Caller, error) {
	if len(r.Authorization) > 1 {
		return identity.Caller{}, refuse(WhyMalformed, "two headers", "more than one authorization header; send one")
	}
	now := s.now.Load()
	for _, a := range now.of {
		who, err := a.Authenticate(r)
		if !errors.Is(err, ErrNone) {
			return who, s.pace(r, who, err)
		}
	}
	return identity.Caller{}, refuse(WhyMissing, "", now.needs)
}

// pace returns err, or the error for an address that sent too many unknown keys.
func (s *Server) pace(r Request, who identity.Caller, err error) error {
	owner := ""
	var no *Refusal
	switch {
	case r.Again || errors.As(err, &no) && !no.Guess:
		return err
	case err == nil:
		owner = who.Owner()
	}
	if wait := s.guesses.admit(r.From, owner); wait != nil {
		return &Refusal{Why: WhyUnknown, Guess: true, err: agent.AsError(wait)}
	}
	return err
}

// sources returns what signs the tokens and certificates that are accepted.
func (a *accepted) sources() []Source { return append(a.tokens.sources(), a.mtls.sources()...) }

// Holds reports whether an owner may call: whether it has a key that is accepted, or has shown a token or certificate
// that would be accepted now. Server may be nil; every owner may call then.
func (s *Server) Holds(ctx context.Context, owner string) (bool, error) {
	if s == nil {
		return true, nil
	}
	switch now := s.now.Load(); {
	case now.keys.Holds(owner):
		return true, nil
	case now.tokens.may(owner), now.mtls.may(owner):
		return s.rights.lasts(ctx, owner, s.c.Clock(), now.sources())
	}
	return false, nil
}

// staleAfter is how long the keys of the store are known well enough to end rights.
const staleAfter = 2 * pollInterval

// Ended says how the rights of an owner have ended.
type Ended struct {
	// Agreed says that all replicas know that the rights have ended: one of the keys is in the store, or the
	// tokens and certificates have expired. Otherwise it follows from the configuration of this replica, or from what
	// it knows of an issuer.
	Agreed bool
	// Busy says that the owner has unfinished tasks; if it is false, nothing is known about them.
	Busy bool
}

// Ended returns the owners who had a right to call, and have none any more: all of their keys have
// expired or were revoked, and the tokens and certificates that they have shown have expired, or are of an issuer, a
// key or an authority that is not accepted any more. Owners without keys are left out while they have no unfinished
// tasks. fresh is false while the keys of the store cannot be read. Server may be nil.
func (s *Server) Ended(ctx context.Context) (owners map[string]Ended, fresh bool, err error) {
	if s == nil {
		return nil, false, nil
	}
	if s.c.Store != nil && time.Since(time.UnixMilli(s.read.Load())) > staleAfter {
		return nil, false, nil
	}
	now, at := s.now.Load(), s.c.Clock()
	owners = map[string]Ended{}
	for owner, inStore := range now.keys.ended() {
		held, err := s.Holds(ctx, owner)
		if err != nil {
			return nil, false, err
		}
		if !held {
			owners[owner] = Ended{Agreed: inStore}
		}
	}
	rights, err := s.rights.ended(ctx, at, now.sources())
	for owner, until := range rights {
		if !now.keys.Holds(owner) {
			keys, had := owners[owner]
			owners[owner] = Ended{Agreed: (!had || keys.Agreed) && !at.Before(until), Busy: true}
		}
	}
	return owners, true, err
}

// Flush logs what is known of addresses that guess, when the server stops.
func (s *Server) Flush() {
	if s != nil {
		s.guesses.flush()
	}
}
