package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/client"
)

func (s *shell) cardCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "card TEAM|URL",
		Short: "Shows the card of a team or of any A2A agent",
		Long: "Shows the card of the agent at URL, or of a team of the server given with\n" +
			"--server; without a server, of a team in ./team.yaml or of the demo.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error { return s.card(c.Context(), args[0]) },
	}
}

func (s *shell) card(ctx context.Context, target string) error {
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
	if s.json() {
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return err
		}
		_, err := fmt.Fprintln(s.out, b.String())
		return err
	}
	fmt.Fprintf(s.out, "%s  %s\n%s\n\n", card.GetName(), card.GetVersion(), card.GetDescription())
	for _, i := range card.GetSupportedInterfaces() {
		fmt.Fprintf(s.out, "  %-10s %-4s %s", i.GetProtocolBinding(), i.GetProtocolVersion(), i.GetUrl())
		if i.GetTenant() != "" {
			fmt.Fprintf(s.out, "  tenant %s", i.GetTenant())
		}
		fmt.Fprintln(s.out)
	}
	fmt.Fprintln(s.out)
	for _, k := range card.GetSkills() {
		fmt.Fprintf(s.out, "  skill %-12s %s  [%s]\n", k.GetId(), k.GetDescription(), strings.Join(k.GetTags(), ", "))
	}
	return nil
}
