package team

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"

	"go.uber.org/zap"

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

// known is what the members of a team said of themselves when they were last asked. It
// never changes, and runs share it for as long as all members are agent.Describers that
// still say the same.
type known struct {
	infos  []*teamv1.AgentInfo // by member; nil for disabled ones and those that could not be asked
	levels int                 // of teams that are nested below the team
	limit  int                 // the least limits.max_depth of those teams

	info     atomic.Pointer[teamv1.AgentInfo]      // the team's own, made of it
	observed atomic.Pointer[teamv1.Event_Observed] // the last one made of it
}

// askInfo returns what the members say of themselves. It asks all enabled ones at the same
// time, unless they are known to say what they said last. depth is that of the team. The
// error is that of a circle; the result is whole all the same.
func (l *Loop) askInfo(ctx context.Context, depth int) (*known, error) {
	if k := l.last.Load(); k != nil && k.reaches(ctx, depth) && l.unchanged(k) {
		return k, nil
	}
	k := &known{infos: make([]*teamv1.AgentInfo, len(l.cfg.Members)), limit: math.MaxInt}
	circles := make([]error, len(l.cfg.Members))
	l.each(agent.WithDepth(ctx, depth), func(ctx context.Context, i int, m *Member) {
		if m.Disabled {
			return
		}
		info, err := l.memberInfo(ctx, m)
		if err != nil {
			if agent.AsError(err).Reason == agent.ReasonMaxDepth {
				circles[i] = err
			}
			l.cfg.Log.Warn("member unavailable", zap.String("team", l.cfg.ID), zap.String("member", m.ID), zap.Error(err))
			return
		}
		k.infos[i] = info
	})
	for i := range l.cfg.Members {
		a, err := l.cfg.Registry.Agent(l.cfg.Members[i].Agent)
		if t, ok := a.(nested); ok && err == nil {
			levels, limit := t.nesting()
			k.levels, k.limit = max(k.levels, levels+1), min(k.limit, limit)
		}
	}
	l.last.Store(k)
	return k, errors.Join(circles...)
}

// nested is a team as a member.
type nested interface {
	nesting() (levels, limit int)
	knownBelow(levels int) *teamv1.AgentInfo
}

// nesting returns how many levels of teams are nested below the team, and the least
// limits.max_depth of them and the team, as far as the team was asked.
func (t *Team) nesting() (levels, limit int) {
	k := t.last.Load()
	if k == nil {
		return 0, t.limits.maxDepth
	}
	return k.levels, min(k.limit, t.limits.maxDepth)
}

// reaches reports whether a team at a depth may ask all those below it: asked again, none
// of them would answer that it is nested too deep.
func (k *known) reaches(ctx context.Context, depth int) bool {
	most := agent.MaxDepth
	if limit, ok := agent.DepthLimit(ctx); ok {
		most = max(most, min(limit, k.limit))
	}
	return depth+k.levels <= most
}

// unchanged reports whether all enabled members are known to say what they said.
func (l *Loop) unchanged(k *known) bool {
	for i := range l.cfg.Members {
		if m := &l.cfg.Members[i]; !m.Disabled && (k.infos[i] == nil || l.knownInfo(m, k.levels) != k.infos[i]) {
			return false
		}
	}
	return true
}

// knownInfo returns what a member is known to say of itself; nil: it has to be asked, or
// has more levels of teams than were below the team when it was asked, as in a circle.
func (l *Loop) knownInfo(m *Member, levels int) *teamv1.AgentInfo {
	a, err := l.cfg.Registry.Agent(m.Agent)
	if err != nil {
		return nil
	}
	switch a := a.(type) {
	case nested:
		return a.knownBelow(levels)
	case agent.Describer:
		return a.KnownInfo()
	}
	return nil
}

// knownBelow is KnownInfo of a team with fewer levels below it than a number.
func (t *Team) knownBelow(levels int) *teamv1.AgentInfo {
	if k := t.last.Load(); k != nil && k.levels < levels && t.unchanged(k) {
		return t.describe(k)
	}
	return nil
}

// rosterEvent returns the roster as it goes on record: what members said of themselves, and
// how they are.
func (l *Loop) rosterEvent(k *known) *teamv1.Event_Observed {
	last := k.observed.Load()
	if last != nil && l.wellAs(last.Observed.GetMembers()) {
		return last
	}
	o := &teamv1.Observed{Members: make([]*teamv1.Observed_Member, len(l.cfg.Members))}
	for i := range l.cfg.Members {
		m := &l.cfg.Members[i]
		o.Members[i] = &teamv1.Observed_Member{Id: m.ID, Info: k.infos[i], Health: l.health(m)}
	}
	event := &teamv1.Event_Observed{Observed: o}
	k.observed.Store(event)
	return event
}

// wellAs reports whether all members are as a roster says.
func (l *Loop) wellAs(roster []*teamv1.Observed_Member) bool {
	for i := range l.cfg.Members {
		if !sameHealth(l.health(&l.cfg.Members[i]), roster[i].GetHealth()) {
			return false
		}
	}
	return true
}

// sameHealth reports whether two results are the same. Those with members are where they
// are one.
func sameHealth(a, b *teamv1.Health) bool {
	return a == b || len(a.GetMembers())+len(b.GetMembers()) == 0 &&
		a.GetHealthy() == b.GetHealthy() && a.GetUsable() == b.GetUsable() && a.GetDetail() == b.GetDetail()
}
