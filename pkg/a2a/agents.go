package a2a

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/similar"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// Agents is the set of agents that a handler serves. The agent manager implements it.
type Agents interface {
	// Get returns an agent, or an *agent.Error with the reason AGENT_NOT_FOUND.
	Get(id string) (agent.Agent, error)
	// IDs returns the ids of all agents, sorted.
	IDs() []string
}

// Pinner is an optional interface of Agents whose definitions may change while they are served.
// It ties a run to the revisions with which it began, also if another process continues it. If
// Agents does not implement it, a run always uses the agent that Get returns. Implementations
// must be safe for concurrent use.
type Pinner interface {
	// Pins returns the current revisions of the agent and of all agents that it uses. They must
	// be stored before Pins returns, so that Pinned can find them. The result is shared; do not
	// modify it. Errors are those of Get and of the store.
	Pins(ctx context.Context, id string) (*teamv1.Pins, error)
	// Pinned returns the agent at the revision in pins. The caller must call release when it has
	// stopped driving the run. If the error is an *agent.Error, the revision is no longer
	// available, and the run ends as INTERRUPTED; after any other error the call is repeated
	// later.
	Pinned(ctx context.Context, id string, pins *teamv1.Pins) (a agent.Agent, release func(), err error)
}

// Finder is an optional interface of Agents to which agents may be added while they are served,
// by this process or by another one. Implementations must be safe for concurrent use.
type Finder interface {
	// Find is like Get, but also looks for an agent that this process does not know yet. Errors
	// are those of Get, or why the search failed.
	Find(ctx context.Context, id string) (agent.Agent, error)
}

// Access is an optional interface of Agents that limits who may use an agent. Without it every
// caller may use every agent, and all cards are public. Implementations must be safe for concurrent
// use.
type Access interface {
	// Allows reports whether a caller may use an agent.
	Allows(who identity.Caller, id string) bool
	// AllowsRuns reports whether runs of an account may begin tasks of an agent, which may be only a
	// member of a team.
	AllowsRuns(account, id string) bool
	// AccountOf returns the account that has made an agent by the API, empty for one of the configuration file.
	AccountOf(id string) string
	// HasPublicCard reports whether the card of an agent may be read without authentication.
	HasPublicCard(id string) bool
}

// directory is what callers and runs see of the agents that are served.
type directory struct {
	agents   Agents
	settings *settings.Live
	version  string // of the program
}

// Find returns an agent that the caller of ctx may use. For an agent that it may not use, the error is
// the same as for an unknown id: AGENT_NOT_FOUND. Other errors are those of Finder.Find.
func (h *Handler) Find(ctx context.Context, id string) (agent.Agent, error) {
	return h.agents.find(ctx, id)
}

// resolve returns the agent that tenant names and its id. An empty tenant means the default
// agent.
func (d *directory) resolve(ctx context.Context, tenant string) (string, agent.Agent, error) {
	id, err := d.idOf(ctx, tenant)
	if err != nil {
		return "", nil, err
	}
	a, err := d.find(ctx, id)
	if err != nil {
		return "", nil, err
	}
	return id, a, nil
}

// find returns an agent that the caller of ctx may use. For an agent that it may not use, the error is
// the same as for an unknown id: AGENT_NOT_FOUND. Other errors are those of Finder.Find.
func (d *directory) find(ctx context.Context, id string) (agent.Agent, error) {
	a, err := d.lookup(ctx, id)
	who, _ := identity.CallerOf(ctx)
	if err == nil && !d.allows(who, id) || err != nil && agent.AsError(err).Reason == agent.ReasonAgentNotFound {
		return nil, d.notFound(ctx, id)
	}
	return a, err
}

// lookup returns the agent with this id without checking access. Errors are those of Finder.Find, or of
// Agents.Get if Agents does not implement Finder.
func (d *directory) lookup(ctx context.Context, id string) (agent.Agent, error) {
	if f, ok := d.agents.(Finder); ok {
		return f.Find(ctx, id)
	}
	return d.agents.Get(id)
}

// allows reports whether a caller may use an agent.
func (d *directory) allows(who identity.Caller, id string) bool {
	a, ok := d.agents.(Access)
	return !ok || a.Allows(who, id)
}

// allowsRuns reports whether runs of an owner may begin tasks of an agent.
func (d *directory) allowsRuns(owner, id string) bool {
	a, ok := d.agents.(Access)
	return !ok || a.AllowsRuns(identity.AccountOf(owner), id)
}

// accountOf returns the account that has made an agent by the API, empty for one of the configuration file.
func (d *directory) accountOf(id string) string {
	if a, ok := d.agents.(Access); ok {
		return a.AccountOf(id)
	}
	return ""
}

// hasPublicCard reports whether the card of an agent may be read without authentication.
func (d *directory) hasPublicCard(id string) bool {
	a, ok := d.agents.(Access)
	return !ok || a.HasPublicCard(id)
}

// usable returns the sorted ids of the agents that the caller of ctx may use. It returns nil if ctx has no
// caller.
func (d *directory) usable(ctx context.Context) []string {
	who, ok := identity.CallerOf(ctx)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.agents.IDs()), func(id string) bool { return !d.allows(who, id) })
}

// idOf returns the id of the agent that tenant names. An empty tenant means the default agent.
func (d *directory) idOf(ctx context.Context, tenant string) (string, error) {
	if id := cmp.Or(tenant, d.settings.Load().GetDefaultAgent()); id != "" {
		return id, nil
	}
	if ids := d.agents.IDs(); len(ids) == 1 {
		return ids[0], nil
	}
	return "", a2aerror.Invalid(agent.Violation{Field: "tenant", Description: "is required, because there is no default agent; known agents and teams: " + nameAll(d.usable(ctx))})
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
func (d *directory) notFound(ctx context.Context, id string) error {
	text := fmt.Sprintf("agent %q not found", a2aerror.Clip(id))
	if ids := d.usable(ctx); len(ids) > 0 {
		hint := "known agents: " + nameAll(ids)
		if len(ids) <= maxSuggest {
			if near := similar.Nearest(id, ids, 2); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
		}
		text += "; " + hint
	}
	return agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "%s", text).With("agent", a2aerror.Clip(id))
}

// pins returns the program version and the revisions that a new run of an agent is tied to.
func (d *directory) pins(ctx context.Context, id string) (*teamv1.Pins, error) {
	pins := &teamv1.Pins{Code: d.version}
	p, ok := d.agents.(Pinner)
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
func (d *directory) pinTeam(ctx context.Context, before *teamv1.Pins, acc *teamv1.Accepted) error {
	id := acc.GetDetached().GetTeam()
	if id == "" {
		return nil
	}
	pins, err := d.pins(ctx, id)
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
