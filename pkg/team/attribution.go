package team

import (
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// inner is what readers are shown of a member while it works.
func (p *process) inner(member string) teamv1.Step_Inner {
	i := slices.IndexFunc(p.cfg.Members, func(m Member) bool { return m.ID == member })
	switch {
	case i < 0 || !p.cfg.Members[i].StreamInner:
		return teamv1.Step_INNER_UNSPECIFIED
	case p.cfg.Members[i].HideText:
		return teamv1.Step_INNER_EVENTS
	}
	return teamv1.Step_INNER_TEXT
}

// joins are the ids of the steps whose results a reply joins.
func (s *State) joins(d *Decision) []string {
	if len(d.Joins) == 0 && s.Last != nil && d.Reply == s.Last.Message {
		return s.Last.Joins
	}
	return d.Joins
}

// joinedIDs are the ids of steps whose results are joined: none of a single one.
func joinedIDs(steps []*StepState) []string {
	if len(steps) < 2 {
		return nil
	}
	ids := make([]string, len(steps))
	for i, st := range steps {
		ids[i] = st.Step.GetId()
	}
	return ids
}
