package a2a

import (
	"context"
	"errors"
	"maps"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// pins are what a new run of an agent is tied to.
func (h *Handler) pins(ctx context.Context, id string) (*teamv1.Pins, error) {
	pins := &teamv1.Pins{Code: h.c.Version}
	p, ok := h.c.Agents.(Pinner)
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

// pinTeam ties a detached run to the team that its agent works for, besides.
func (h *Handler) pinTeam(ctx context.Context, acc *teamv1.Accepted) error {
	id := acc.GetDetached().GetTeam()
	if id == "" {
		return nil
	}
	pins, err := h.pins(ctx, id)
	var gone *agent.Error
	switch {
	case errors.As(err, &gone): // it works without
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

// placeTime bounds how long the place of a conversation is waited for: a run can do
// without.
const placeTime = 5 * time.Second

// conversation is what a new run of an agent reads of the context that its
// message names. A context that is new has nothing to read.
func (h *Handler) conversation(ctx context.Context, a agent.Agent, t Thread, fresh bool) *teamv1.Conversation {
	v := &teamv1.Conversation{ContextId: t.ContextID}
	kept, ok := h.c.Store.(Conversations)
	if !ok || fresh || !agent.Remembers(a) {
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	n, err := kept.Position(ctx, t)
	if err != nil {
		n = Unread // the run tells
	}
	v.History = n
	return v
}
