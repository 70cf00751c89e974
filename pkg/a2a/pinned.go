package a2a

import (
	"context"
	"errors"
	"maps"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// pins returns the program version and the revisions that a new run of an agent is tied to.
func (c *Config) pins(ctx context.Context, id string) (*teamv1.Pins, error) {
	pins := &teamv1.Pins{Code: c.Version}
	p, ok := c.Agents.(Pinner)
	if !ok {
		return pins, nil
	}
	known, err := p.Pins(ctx, id)
	if err != nil {
		return nil, err
	}
	pins.Revisions, pins.Accounts = known.GetRevisions(), known.GetAccounts()
	return pins, nil
}

// sameMaker reports whether an agent or team belongs to the same account in two pins, as far as both have it.
func sameMaker(a, b *teamv1.Pins, id string) bool {
	_, inA := a.GetRevisions()[id]
	_, inB := b.GetRevisions()[id]
	return !inA || !inB || a.GetAccounts()[id] == b.GetAccounts()[id]
}

// pinTeam also ties a detached run to the revisions of the team for which its agent works. before are the pins of the
// run that detaches it.
func (c *Config) pinTeam(ctx context.Context, before *teamv1.Pins, acc *teamv1.Accepted) error {
	id := acc.GetDetached().GetTeam()
	if id == "" {
		return nil
	}
	pins, err := c.pins(ctx, id)
	var gone *agent.Error
	switch {
	case errors.As(err, &gone): // the run works without its team
		return nil
	case err != nil:
		return err
	}
	if len(pins.GetRevisions()) == 0 || !sameMaker(before, pins, id) { // another account's team of the same id
		return nil
	}
	acc.Pins.Revisions = merged(pins.GetRevisions(), acc.GetPins().GetRevisions())
	acc.Pins.Accounts = merged(pins.GetAccounts(), acc.GetPins().GetAccounts())
	return nil
}

// merged returns the entries of both maps; those of b take precedence.
func merged(a, b map[string]string) map[string]string {
	both := make(map[string]string, len(a)+len(b))
	maps.Copy(both, a)
	maps.Copy(both, b)
	return both
}
