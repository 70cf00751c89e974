package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/client"
)

// Card prints the card of a team, or of the agent at a URL. With files of trusted
// keys it prints nothing of a card that none of them signed, and else only what they
// signed.
func (s *Shell) Card(ctx context.Context, target string, f *Calling) error {
	if !strings.Contains(target, "://") {
		if _, err := s.config(target, f); err != nil { // before a server is started
			return err
		}
		base, stop, err := s.reach(ctx, "")
		if err != nil {
			return err
		}
		defer stop()
		target = base + "/" + url.PathEscape(target)
	}
	return s.CallCard(ctx, target, false, f)
}

// CallCard prints the card of the agent at a URL: the public one, or the one for
// callers who are known.
func (s *Shell) CallCard(ctx context.Context, target string, extended bool, f *Calling) error {
	if extended {
		return s.calling(ctx, target, f, func(ctx context.Context, c *client.Client) error {
			card, err := c.ExtendedCard(ctx, &a2av1.GetExtendedAgentCardRequest{Tenant: f.Tenant})
			if err != nil {
				return err
			}
			return s.showCard(card, nil)
		})
	}
	cfg, err := s.config(target, f)
	if err != nil {
		return err
	}
	return f.inTime(ctx, func(ctx context.Context) error {
		card, raw, err := client.ReadCard(ctx, target, cfg)
		if err != nil {
			return err
		}
		if cfg.Verify != nil {
			raw = nil // it may hold more than was signed
		}
		return s.showCard(card, raw)
	})
}

// showCard prints a card; raw is its JSON as it came, nil for the JSON of the card.
func (s *Shell) showCard(card *a2av1.AgentCard, raw []byte) error {
	switch {
	case s.JSON && raw == nil:
		return s.print(card)
	case s.JSON:
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return err
		}
		_, err := fmt.Fprintln(s.Out, b.String())
		return err
	}
	fmt.Fprintf(s.Out, "%s  %s\n%s\n\n", card.GetName(), card.GetVersion(), card.GetDescription())
	for _, i := range card.GetSupportedInterfaces() {
		fmt.Fprintf(s.Out, "  %-10s %-4s %s", i.GetProtocolBinding(), i.GetProtocolVersion(), i.GetUrl())
		if i.GetTenant() != "" {
			fmt.Fprintf(s.Out, "  tenant %s", i.GetTenant())
		}
		fmt.Fprintln(s.Out)
	}
	fmt.Fprintln(s.Out)
	for _, k := range card.GetSkills() {
		fmt.Fprintf(s.Out, "  skill %-12s %s  [%s]\n", k.GetId(), k.GetDescription(), strings.Join(k.GetTags(), ", "))
	}
	return nil
}

// verifier verifies cards by the keys in files, and says which key it was; nil: no
// file, nothing is verified.
func (s *Shell) verifier(files []string) (func(*a2av1.AgentCard) (*a2av1.AgentCard, error), error) {
	var keys [][]byte
	for _, name := range files {
		data, err := os.ReadFile(name) //nolint:gosec // the user names the file
		if err == nil {
			_, err = cardsign.ParseTrusted(data)
		}
		if err != nil {
			return nil, usagef("--verify %s: %w", name, err)
		}
		keys = append(keys, data)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	trust, err := cardsign.NewTrust(keys...)
	if err != nil {
		return nil, err
	}
	return func(card *a2av1.AgentCard) (*a2av1.AgentCard, error) {
		signed, kid, err := trust.Verify(card)
		if err == nil {
			s.sayf("signed by %q, which is trusted", kid)
		}
		return signed, err
	}, nil
}
