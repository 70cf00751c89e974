package team

import (
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Infos returns what members said of themselves when the run began.
func (s *State) Infos() Infos { return Infos{roster: s.Roster} }

// Infos are what members said of themselves when the run began. Each is looked for
// behind the one before: in the order of the roster it is found at once.
type Infos struct {
	roster []*teamv1.Observed_Member
	next   int
}

// Of returns the info of a member; nil is nothing.
func (k *Infos) Of(m *Member) *teamv1.AgentInfo {
	id := MemberID(m)
	for range k.roster {
		o := k.roster[k.next%len(k.roster)]
		k.next++
		if o.GetId() == id {
			return o.GetInfo()
		}
	}
	return nil
}

// DescriptionOf returns what a member does: in the team's words, else in its own.
func DescriptionOf(m *Member, info *teamv1.AgentInfo) string {
	if m.Description != "" {
		return m.Description
	}
	return info.GetDescription()
}

// Staffed returns the error of a run of a team none of whose members is enabled, else nil.
func Staffed(s *State) error {
	if slices.ContainsFunc(s.Team.Members, func(m Member) bool { return !m.Disabled }) {
		return nil
	}
	return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonTeamError,
		"team %q has no enabled member; enable one", s.Team.ID)
}

// Enabled returns the members that get work, in the team's order.
func (s *State) Enabled() []*Member {
	var on []*Member
	for i := range s.Team.Members {
		if m := &s.Team.Members[i]; !m.Disabled {
			on = append(on, m)
		}
	}
	return on
}

// MemberID returns the id of a member in its team.
func MemberID(m *Member) string {
	if m.ID == "" {
		return m.Agent
	}
	return m.ID
}
