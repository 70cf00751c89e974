package a2aclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/wire"
)

// Verifier verifies the signatures of cards. It must be safe for concurrent use.
type Verifier interface {
	// Verify returns the part of a card that a trusted key has signed, and the id of that
	// key. Only that part is used. If there is no such signature Verify returns an error,
	// and the card is not used. It does not modify the card.
	Verify(card *a2av1.AgentCard) (signed *a2av1.AgentCard, kid string, err error)
}

// NewVerifier returns a Verifier that trusts the public keys in the contents of files,
// each of which is PEM, a JSON Web Key or a set of those (RFC 7517). It does not fetch the
// keys to which a card refers.
func NewVerifier(files ...[]byte) (Verifier, error) { return cardsign.NewTrust(files...) }

const (
	wellKnown    = "/.well-known/agent-card.json"
	maxRedirects = 3 // of a card, within its origin
)

// ReadCard reads the card at a URL whose path ends in .json. For another URL it reads the
// card at /.well-known/agent-card.json below that. If the server has no card there, and does
// not say that it has no such agent, ReadCard reads the one at the origin of the URL. ReadCard sends Config.Token
// and Config.Header to the URL, and follows redirects within its origin only. With
// Config.Verifier it returns the part of the card that was signed. raw is the JSON of the
// whole card as it was received, also if that is not a valid card. Besides the errors of
// all calls there are those of the kinds ErrAddress, ErrNoCard and ErrUntrusted.
func ReadCard(ctx context.Context, target string, cfg Config) (card *a2av1.AgentCard, raw []byte, err error) {
	version := V1
	if cfg.Version != "" {
		version = cfg.Version // otherwise some servers send only the card of 1.0
	}
	w := newWeb(cfg, version)
	if cfg.Transport == nil {
		defer w.close() //nolint:errcheck // no other call uses the connection
	}
	at, err := cardURLs(target)
	if err != nil {
		return nil, nil, err
	}
	var tried []string
	for _, u := range at {
		card, raw, err = w.readCard(ctx, u)
		if !absent(err) {
			return card, raw, err
		}
		tried = append(tried, err.Error())
	}
	return card, raw, &kindError{text: strings.Join(tried, "; "), kind: ErrNoCard, cause: err}
}

// cardURLs returns the URLs at which the card of target may be, the first one that of target itself.
func cardURLs(target string) ([]*url.URL, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, noAddress(target, "http://HOST/…, https://HOST/… or grpc://HOST:PORT/TENANT")
	}
	if strings.HasSuffix(u.Path, ".json") {
		return []*url.URL{u}, nil
	}
	list := []*url.URL{u.JoinPath(wellKnown)}
	if strings.Trim(u.Path, "/") != "" {
		origin := *u
		origin.Path, origin.RawPath = wellKnown, ""
		list = append(list, &origin)
	}
	return list, nil
}

// absent reports whether err means that a server has no card at a URL and may have one elsewhere: it
// does not know the path, or has a page for every path. A server that says in the terms of A2A that
// it has no such agent has none elsewhere either: the card at its origin would be another agent's.
func absent(err error) bool {
	if !errors.Is(err, ErrNoCard) {
		return false
	}
	var refused *ServerError
	if errors.As(err, &refused) {
		return refused.Domain == "" && (refused.HTTPStatus == http.StatusNotFound || refused.HTTPStatus == http.StatusMethodNotAllowed)
	}
	return true
}

// readCard reads the card at a URL.
func (w *web) readCard(ctx context.Context, at *url.URL) (card *a2av1.AgentCard, raw []byte, err error) {
	if raw, err = w.cardJSON(ctx, at); err != nil {
		return nil, nil, err
	}
	if w.cfg.Verifier == nil {
		if card, err = a2av03.ReadCard(raw); err != nil {
			return nil, raw, noCard(at, wire.AnswerFault(err))
		}
		if card.GetName() == "" && len(card.GetSupportedInterfaces()) == 0 {
			return nil, raw, noCard(at, "it has neither a name nor interfaces")
		}
		return card, raw, nil
	}
	card = &a2av1.AgentCard{} // the form of 1.0, which signatures cover
	if err := wire.Unmarshal(raw, card); err != nil {
		return nil, raw, noCard(at, wire.AnswerFault(err))
	}
	signed, _, err := w.cfg.Verifier.Verify(card)
	if err != nil {
		return nil, raw, untrusted("the card of "+wire.Redacted(at.String()), err)
	}
	return signed, raw, nil
}

func noCard(at *url.URL, why string) error {
	answer := &AnswerError{Problem: why}
	return &kindError{text: wire.Redacted(at.String()) + " is not an A2A card: " + why, kind: ErrNoCard, cause: answer}
}

func untrusted(what string, err error) error {
	return &kindError{text: what + " is not trusted: " + err.Error(), kind: ErrUntrusted, cause: err}
}

// cardJSON returns the JSON of the card at a URL.
func (w *web) cardJSON(ctx context.Context, u *url.URL) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, noAddress(u.String(), "http://HOST/…")
	}
	req.Header.Set("Accept", wire.TypeA2A+", "+wire.TypeJSON)
	within := &web{cfg: w.cfg, version: w.version, http: &http.Client{Transport: w.http.Transport, CheckRedirect: sameOrigin}}
	status, data, err := within.answer(req, nil, MaxCard)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		refused := within.refused(wire.ParseRESTError(status, data), status)
		return nil, &kindError{text: fmt.Sprintf("no card at %s: %v", wire.Redacted(u.String()), refused), kind: ErrNoCard, cause: refused}
	}
	return data, nil
}

// sameOrigin is a CheckRedirect that follows maxRedirects, and none to another origin.
func sameOrigin(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > maxRedirects || req.URL.Scheme != first.Scheme || egress.HostPort(req.URL) != egress.HostPort(first) {
		return http.ErrUseLastResponse
	}
	return nil
}
