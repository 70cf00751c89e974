package a2a

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agentteams/team-server/pkg/agent"
)

// Find returns an agent that the caller of ctx may use. For an agent that it may not use, the error is
// the same as for an unknown id: AGENT_NOT_FOUND. Other errors are those of Finder.Find.
func (h *Handler) Find(ctx context.Context, id string) (agent.Agent, error) {
	a, err := h.lookup(ctx, id)
	who, _ := CallerOf(ctx)
	if err == nil && !h.allows(who, id) || err != nil && agent.AsError(err).Reason == agent.ReasonAgentNotFound {
		return nil, h.notFound(ctx, id)
	}
	return a, err
}

// lookup returns the agent with this id without checking access. Errors are those of Finder.Find, or of
// Agents.Get if Agents does not implement Finder.
func (h *Handler) lookup(ctx context.Context, id string) (agent.Agent, error) {
	if f, ok := h.c.Agents.(Finder); ok {
		return f.Find(ctx, id)
	}
	return h.c.Agents.Get(id)
}

// allows reports whether a caller may use an agent.
func (h *Handler) allows(who Caller, id string) bool {
	a, ok := h.c.Agents.(Access)
	return !ok || a.Allows(who, id)
}

// allowsRuns reports whether runs of an owner may begin tasks of an agent.
func (h *Handler) allowsRuns(owner, id string) bool {
	a, ok := h.c.Agents.(Access)
	return !ok || a.AllowsRuns(AccountOf(owner), id)
}

// accountOf returns the account that has made an agent by the API, empty for one of the configuration file.
func (h *Handler) accountOf(id string) string {
	if a, ok := h.c.Agents.(Access); ok {
		return a.AccountOf(id)
	}
	return ""
}

// hasPublicCard reports whether the card of an agent may be read without authentication.
func (h *Handler) hasPublicCard(id string) bool {
	a, ok := h.c.Agents.(Access)
	return !ok || a.HasPublicCard(id)
}

// usable returns the sorted ids of the agents that the caller of ctx may use. It returns nil if ctx has no
// caller.
func (h *Handler) usable(ctx context.Context) []string {
	who, ok := CallerOf(ctx)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(h.c.Agents.IDs()), func(id string) bool { return !h.allows(who, id) })
}

// idOf returns the id of the agent that tenant names. An empty tenant means the default agent.
func (h *Handler) idOf(ctx context.Context, tenant string) (string, error) {
	if id := cmp.Or(tenant, h.now().GetDefaultAgent()); id != "" {
		return id, nil
	}
	if ids := h.c.Agents.IDs(); len(ids) == 1 {
		return ids[0], nil
	}
	return "", Invalid(Violation{Field: "tenant", Description: "is required, because there is no default agent; known agents and teams: " + nameAll(h.usable(ctx))})
}

const (
	// maxSuggest is the maximum number of agents among which a similar id is searched for.
	maxSuggest = 1000
	// maxNamed is the maximum number of agents that an error lists.
	maxNamed = 20
)

// nameAll returns ids as a text, which names the call that lists them if there are many.
func nameAll(ids []string) string {
	switch {
	case len(ids) == 0:
		return "none"
	case len(ids) <= maxNamed:
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("GET /team/v1/registry/agents lists all %d", len(ids))
}

// notFound returns the error for an id that is unknown to the caller of ctx. It names the most similar
// agent that the caller may use, or all of them if they are few. Without a caller it names none.
func (h *Handler) notFound(ctx context.Context, id string) error {
	text := fmt.Sprintf("agent %q not found", clip(id))
	if ids := h.usable(ctx); len(ids) > 0 {
		hint := "known agents: " + nameAll(ids)
		if near := nearest(id, ids); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		text += "; " + hint
	}
	return agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "%s", text).With("agent", clip(id))
}

// nearest returns the id that differs least from an unknown one, or "" if none is similar.
func nearest(id string, ids []string) string {
	if id == "" || len(id) > 63 || len(ids) > maxSuggest {
		return ""
	}
	best, distance := "", 3
	for _, known := range ids {
		if d := editDistance(id, known); d < distance && d < len(known) {
			best, distance = known, d
		}
	}
	return best
}

// editDistance returns the number of bytes to insert, delete or change.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
