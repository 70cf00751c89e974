package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/wire"
)

// ReadCard reads the card at a URL, or the one below it. raw is its JSON.
func ReadCard(ctx context.Context, target string, cfg Config) (card *a2av1.AgentCard, raw []byte, err error) {
	return newWeb(cfg).card(ctx, target)
}

func (w *web) card(ctx context.Context, target string) (card *a2av1.AgentCard, raw []byte, err error) {
	if raw, err = w.cardJSON(ctx, target); err != nil {
		return nil, nil, err
	}
	if w.cfg.Verify == nil {
		if card, err = a2av03.ReadCard(raw); err != nil {
			return nil, raw, fmt.Errorf("%s is no A2A card: %w", target, err)
		}
		return card, raw, nil
	}
	card = &a2av1.AgentCard{} // as it is defined now: signatures are over that
	if err := wire.Unmarshal(raw, card); err != nil {
		return nil, raw, fmt.Errorf("%s is no A2A card: %w", target, err)
	}
	if card, err = w.cfg.Verify(card); err != nil {
		return nil, raw, fmt.Errorf("the card of %s is not to be trusted: %w", target, err)
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
		u = u.JoinPath(wellKnown)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, noAddress(target, "http://HOST/…")
	}
	status, data, err := w.answer(req, nil)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("no card at %s: %w", u.Redacted(), refused(wire.ParseRESTError(status, data)))
	}
	return data, nil
}
