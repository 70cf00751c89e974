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
	pins.Revisions = known.GetRevisions()
	return pins, nil
}

// pinTeam also ties a detached run to the revisions of the team for which its agent works.
func (c *Config) pinTeam(ctx context.Context, acc *teamv1.Accepted) error {
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
	if len(pins.GetRevisions()) == 0 {
		return nil
	}
	both := maps.Clone(pins.GetRevisions())
	maps.Copy(both, acc.GetPins().GetRevisions())
	acc.Pins.Revisions = both
	return nil
}
