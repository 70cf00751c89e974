package team

import (
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// noUpstreams is the Upstreams of a team that has none. It allows every call.
type noUpstreams struct{}

func (noUpstreams) Allow(string) (func(agent.Judgement), error) { return func(agent.Judgement) {}, nil }
func (noUpstreams) Open(string) string                          { return "" }
func (noUpstreams) Called(string)                               {}
func (noUpstreams) MayRetry(string) bool                        { return true }

// upstreams returns the configured Upstreams, or one that allows every call.
func (l *Loop) upstreams() Upstreams {
	if l.cfg.Upstreams == nil {
		return noUpstreams{}
	}
	return l.cfg.Upstreams
}

// notCalled is the prefix of a health detail that says why a member is not called.
const notCalled = "not called: "

// whyNotCalled returns the health detail of a member whose circuit breaker is open; empty if it may
// be called.
func (l *Loop) whyNotCalled(m *Member) string {
	if why := l.upstreams().Open(m.Agent); why != "" {
		return notCalled + why
	}
	return ""
}

// health returns the health of a member that goes on record: unhealthy if its circuit breaker is
// open, else what the registry reports.
func (l *Loop) health(m *Member) *teamv1.Health {
	if why := l.whyNotCalled(m); why != "" {
		return agent.Unhealthy(why)
	}
	return l.cfg.Registry.Health(m.Agent)
}

// recordBreakers records the health of members whose circuit breaker opened or closed since the
// last record.
func (p *process) recordBreakers() error {
	if p.cfg.Upstreams == nil || len(p.Roster) != len(p.cfg.Members) {
		return nil
	}
	o := &teamv1.Observed{}
	for i := range p.cfg.Members {
		m, known := &p.cfg.Members[i], p.Roster[i]
		why, was := p.whyNotCalled(m), known.GetHealth().GetDetail()
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
