package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/agentteams/team-server/internal/client"
)

// Card prints the card of a team, or of the agent at a URL.
func (s *Shell) Card(ctx context.Context, target string) error {
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
	if s.JSON {
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
