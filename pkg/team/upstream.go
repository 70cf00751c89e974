package team

import (
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// noUpstreams is the Upstreams of a team that has none. It allows every call.
type noUpstreams struct{}

func (noUpstreams) Allow(string, string) (func(agent.Judgement), error) {
	return func(agent.Judgement) {}, nil
}
func (noUpstreams) Open(string, string) string                  { return "" }
func (noUpstreams) Called(string, string)                       {}
func (noUpstreams) Retry(string, string) (time.Duration, error) { return 0, nil }

// upstreams returns the configured Upstreams, or one that allows every call.
func (l *Loop) upstreams() Upstreams {
	if l.cfg.Upstreams == nil {
		return noUpstreams{}
	}
	return l.cfg.Upstreams
}

// notCalled is the prefix of a health detail that says why a member is not called.
const notCalled = "not called: "

// whyNotCalled returns the health detail of a member whose circuit breaker is open for an account; empty if it may
// be called.
func (l *Loop) whyNotCalled(account string, m *Member) string {
	if why := l.upstreams().Open(account, m.Agent); why != "" {
		return notCalled + why
	}
	return ""
}

// OpenBreakers returns the health details of the members whose circuit breakers are open for an account, by the id of the
// member. HealthCheck without a run knows of no account, and so of no breaker.
func (l *Loop) OpenBreakers(account string) map[string]string {
	var all map[string]string
	for i := range l.cfg.Members {
		m := &l.cfg.Members[i]
		why := l.whyNotCalled(account, m)
		if why == "" || m.Disabled {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[m.ID] = why
	}
	return all
}

// health returns the health of a member that goes on record: unhealthy if its circuit breaker is
// open for the account of the run, else what the registry reports.
func (l *Loop) health(account string, m *Member) *teamv1.Health {
	if why := l.whyNotCalled(account, m); why != "" {
		return agent.Unhealthy(why)
	}
	return l.cfg.Registry.Health(m.Agent)
}

// recordBreakers records the health of members whose circuit breaker opened or closed since the
// last record.
func (r *recorder) recordBreakers() error {
	l := r.loop
	if l.cfg.Upstreams == nil || len(r.Roster) != len(l.cfg.Members) {
		return nil
	}
	o := &teamv1.Observed{}
	for i := range l.cfg.Members {
		m, known := &l.cfg.Members[i], r.Roster[i]
		why, was := l.whyNotCalled(r.run.Account(), m), known.GetHealth().GetDetail()
		if !strings.HasPrefix(was, notCalled) {
			was = ""
		}
		if !m.Disabled && why != was {
			o.Members = append(o.Members, &teamv1.Observed_Member{Id: m.ID, Info: known.GetInfo(), Health: l.health(r.run.Account(), m)})
		}
	}
	if len(o.Members) == 0 {
		return nil
	}
	return r.emit("", &teamv1.Event{Kind: &teamv1.Event_Observed{Observed: o}})
}
