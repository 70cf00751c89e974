package build

import (
	"slices"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/team"
)

// staff finds the members of teams and reports those that may not receive new work.
type staff struct {
	*manager.Manager
	current func() *config.Config
}

var _ team.Staff = staff{}

// Gone implements team.Staff. In a team that is no longer served, all members stay available.
func (s staff) Gone(id, member string) *agent.Error {
	if s.current == nil {
		return nil
	}
	def := s.current()
	if def == nil || def.Server.GetTeams()[id] == nil {
		return nil
	}
	list := config.Members(def.Server.GetTeams()[id])
	i := slices.IndexFunc(list, func(m team.Member) bool { return m.ID == member || m.ID == "" && m.Agent == member })
	switch {
	case i < 0:
		return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonDisabled, "member %q was removed from team %q; use another one", member, id)
	case list[i].Disabled:
		return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonDisabled, "member %q of team %q was disabled; use another one", member, id)
	}
	return nil
}
