package call

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/pkg/a2aclient"
)

// Card prints the card of the agent at a URL: the public card, or the extended card for
// authenticated callers.
func (c *Commands) Card(ctx context.Context, target string, extended bool, f *Flags) error {
	if extended {
		return c.withClient(ctx, target, f, func(ctx context.Context, server *a2aclient.Client) error {
			card, err := server.GetExtendedAgentCard(ctx, &a2av1.GetExtendedAgentCardRequest{Tenant: f.Tenant})
			if err != nil {
				return err
			}
			return c.showCard(card, nil)
		})
	}
	cfg, err := c.config(target, f)
	if err != nil {
		return err
	}
	return f.withTimeout(ctx, func(ctx context.Context) error {
		card, raw, err := a2aclient.ReadCard(ctx, target, cfg)
		if err != nil {
			return err
		}
		if cfg.Verifier != nil {
			raw = nil // it may contain fields that are not signed
		}
		return c.showCard(card, raw)
	})
}

// showCard prints a card. raw is its JSON as received; nil means the encoded card.
func (c *Commands) showCard(card *a2av1.AgentCard, raw []byte) error {
	switch {
	case c.Console.JSON && raw == nil:
		return c.Console.Print(card)
	case c.Console.JSON:
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return err
		}
		_, err := fmt.Fprintln(c.Console.Out, b.String())
		return err
	}
	out := c.Console.Text()
	fmt.Fprintf(out, "%s  %s\n%s\n\n", console.Line(card.GetName()), console.Line(card.GetVersion()), console.Line(card.GetDescription()))
	for _, i := range card.GetSupportedInterfaces() {
		fmt.Fprintf(out, "  %-10s %-4s %s", console.Line(i.GetProtocolBinding()), console.Line(i.GetProtocolVersion()), console.Line(i.GetUrl()))
		if i.GetTenant() != "" {
			fmt.Fprintf(out, "  tenant %s", console.Line(i.GetTenant()))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out)
	for _, k := range card.GetSkills() {
		fmt.Fprintf(out, "  skill %-12s %s  [%s]\n", console.Line(k.GetId()), console.Line(k.GetDescription()), console.Line(strings.Join(k.GetTags(), ", ")))
	}
	return nil
}

// verifier returns a Verifier that trusts the keys in files and prints the id of the
// key that signed a card. It returns nil if there are no files.
func (c *Commands) verifier(files []string) (a2aclient.Verifier, error) {
	var keys [][]byte
	for _, name := range files {
		data, err := os.ReadFile(name) //nolint:gosec // the user names the file
		if err == nil {
			_, err = cardsign.ParseTrusted(data)
		}
		if err != nil {
			return nil, console.Usagef("--verify %s: %w", name, err)
		}
		keys = append(keys, data)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	trust, err := a2aclient.NewVerifier(keys...)
	if err != nil {
		return nil, err
	}
	return reportingVerifier{trust, c.Console}, nil
}

// reportingVerifier is a Verifier that prints the id of the key that signed a card.
type reportingVerifier struct {
	a2aclient.Verifier
	console *console.Console
}

func (t reportingVerifier) Verify(card *a2av1.AgentCard) (*a2av1.AgentCard, string, error) {
	signed, kid, err := t.Verifier.Verify(card)
	if err == nil {
		t.console.Sayf("card signed by trusted key %q", kid)
	}
	return signed, kid, err
}
