package manage

import (
	"context"
	"strconv"
	"time"

	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/pkg/agent"
)

// notReadyRetry is the delay after which a client should retry a request to a team that is not
// ready.
const notReadyRetry = 5 * time.Second

// Ready returns nil if a team is served and the caller of ctx may use it, even if members are
// unhealthy. Otherwise the error is TEAM_NOT_FOUND, or TEAM_NOT_READY if the team is being created by
// the account of the caller, does not fit the configuration file, or could not be built.
func (g *Registry) Ready(ctx context.Context, id string) error {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return err
	}
	if g.Served().Server.GetTeams()[id] != nil {
		if !g.Allows(who, id) {
			return teamNotFound(id)
		}
		return nil
	}
	if err := g.Sync(ctx); err != nil { // another replica may have created it
		return err
	}
	_, making := g.making.Load(agent.KeyOf(who.Account, id))
	served, e := g.Served().Server.GetTeams()[id] != nil, g.state().entries[id]
	switch {
	case making:
		return notReady(id, "it is being created")
	case !g.sees(ctx, id), !served && (e == nil || !e.team()):
		return teamNotFound(id)
	case !served:
		return notReady(id, e.fault())
	}
	return nil
}

// Entry returns the id of the catalog entry that defines a team, or "" if the configuration file
// defines it or it does not exist.
func (g *Registry) Entry(id string) string { return g.state().owners[id] }

func notReady(id, why string) error {
	return &agent.Error{
		Reason: agent.ReasonTeamNotReady, Code: agent.CodeFailedPrecondition, Retry: true, RetryAfter: notReadyRetry,
		Message: "team " + strconv.Quote(id) + " is not ready: " + why,
	}
}
