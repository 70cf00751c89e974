package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/client"
)

// Card prints the card of a team, or of the agent at a URL. With files of trusted
// keys it prints nothing of a card that none of them signed, and else only what they
// signed.
func (s *Shell) Card(ctx context.Context, target string, trusted ...string) error {
	trust, err := trustIn(trusted)
	if err != nil {
		return err
	}
	if !strings.Contains(target, "://") {
		base, stop, err := s.reach(ctx, "")
		if err != nil {
			return err
		}
		defer stop()
		target = base + "/" + url.PathEscape(target)
	}
	card, raw, err := client.ReadCard(ctx, target, s.client())
	if err != nil {
		return err
	}
	if trust != nil {
		var kid string
		if card, kid, err = trust.Verify(card); err != nil {
			return fmt.Errorf("the card of %s is not to be trusted: %w", target, err)
		}
		s.sayf("signed by %q, which is trusted", kid)
	}
	if s.JSON {
		if trust != nil {
			return s.print(card)
		}
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

// trustIn returns the trust in keys of files; nil: no file.
func trustIn(files []string) (*cardsign.Trust, error) {
	var keys [][]byte
	for _, name := range files {
		data, err := os.ReadFile(name) //nolint:gosec // the user names the file
		if err == nil {
			_, err = cardsign.ParseTrusted(data)
		}
		if err != nil {
			return nil, UsageError{fmt.Errorf("--verify %s: %w", name, err)}
		}
		keys = append(keys, data)
	}
	if len(keys) == 0 {
		return nil, nil //nolint:nilnil // nothing is verified
	}
	return cardsign.NewTrust(keys...)
}
