package cli

import (
	"context"
	"net/url"
	"strings"

	"github.com/agentteams/team-server/internal/cli/call"
)

// Card prints the card of a team, or of the agent at a URL. With trusted keys, it fails unless one
// of them signed the card, and prints only the signed content.
func (s *Shell) Card(ctx context.Context, target string, f *call.Flags) error {
	calls := &call.Commands{Console: &s.Console, Connection: &s.Connection}
	if !strings.Contains(target, "://") {
		if err := calls.Check(target, f); err != nil { // report wrong flags before starting a server
			return err
		}
		base, stop, err := s.reach(ctx, "")
		if err != nil {
			return err
		}
		defer stop()
		target = base + "/" + url.PathEscape(target)
	}
	return calls.Card(ctx, target, false, f)
}
