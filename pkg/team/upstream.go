package team

import (
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// everything is the Upstreams of a team that has none: every call may be made.
type everything struct{}

func (everything) Allow(string) (func(agent.Judgement), error) { return func(agent.Judgement) {}, nil }
func (everything) Open(string) string                          { return "" }
func (everything) Called(string)                               {}
func (everything) MayRetry(string) bool                        { return true }

// upstreams is what the loop asks.
func (l *Loop) upstreams() Upstreams {
	if l.cfg.Upstreams == nil {
		return everything{}
	}
	return l.cfg.Upstreams
}

// notCalled begins the health of members that are not called.
const notCalled = "not called: "

// open says why a member is not called, as its health says it; empty: it is.
func (l *Loop) open(m *Member) string {
	if why := l.upstreams().Open(m.Agent); why != "" {
		return notCalled + why
	}
	return ""
}

// health is what is known of a member: its own word, unless it is not called.
func (l *Loop) health(m *Member) *teamv1.Health {
	if why := l.open(m); why != "" {
		return agent.Unhealthy(why)
	}
	return l.cfg.Registry.Health(m.Agent)
}

// watch puts on record what has changed with the breakers of members since it was
// last on record.
func (p *process) watch() error {
	if p.cfg.Upstreams == nil || len(p.Roster) != len(p.cfg.Members) {
		return nil
	}
	o := &teamv1.Observed{}
	for i := range p.cfg.Members {
		m, known := &p.cfg.Members[i], p.Roster[i]
		why, was := p.open(m), known.GetHealth().GetDetail()
		if !strings.HasPrefix(was, notCalled) {
			was = ""
		}
		if !m.Disabled && why != was {
			o.Members = append(o.Members, &teamv1.Observed_Member{Id: m.ID, Info: known.GetInfo(), Health: p.health(m)})
		}
	}
	if len(o.Members) == 0 {
		return nil
	}
	return p.emit("", &teamv1.Event{Kind: &teamv1.Event_Observed{Observed: o}})
}
