package build

import (
	"slices"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/team"
)

// staff finds the members of teams and reports those that may not receive new work.
type staff struct {
	*manager.Manager
	own     *config.Config // that the teams are built from
	current func() *config.Config
}

var _ team.Staff = staff{}

// Gone implements team.Staff. Only a member that the team has and that is disabled now is gone: runs that began with a
// definition go on with its members, whatever the team has become. A team of another account with the same id is
// another team.
func (s staff) Gone(id, member string) *agent.Error {
	if s.current == nil {
		return nil
	}
	def := s.current()
	if def == nil || def.AccountOf(id) != s.own.AccountOf(id) {
		return nil
	}
	list := modes.Members(def.Server.GetTeams()[id])
	i := slices.IndexFunc(list, func(m team.Member) bool { return m.ID == member || m.ID == "" && m.Agent == member })
	if i < 0 || !list[i].Disabled {
		return nil
	}
	return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonDisabled, "member %q of team %q was disabled; use another one", member, id)
}
