package team

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Upstreams knows how calls went of late, of all teams of a process: it keeps
// them from calling what does not work, and from repeating too much.
// A *upstream.Guard is one. Safe for concurrent use; it never blocks.
type Upstreams interface {
	// Allow asks whether the agent registered under an id may be called. The error
	// is BREAKER_OPEN; else done is called once, with what came of the call.
	Allow(agentID string) (done func(agent.Judgement), err error)
	// Open says why an agent is not called now, in words that stay the same as
	// long as that holds; empty: it is called.
	Open(agentID string) string
	// Called counts the first attempt of a call of an agent, model or tool.
	Called(upstream string)
	// MayRetry counts a further one, unless there were too many of them.
	MayRetry(upstream string) bool
}

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

// maxRetryAfter is the longest pause that a callee may ask for: who wants to be
// left alone for longer is not called again.
const maxRetryAfter = time.Minute

// admit asks right before an attempt whether the member may be called. What has
// begun before a crash goes on in any case.
func (r *runner) admit(w *work, ex *executor) error {
	if w.attempts == 0 && ex.leaf {
		r.upstreams().Called(ex.upstream)
	}
	if ex.agent == "" {
		return nil
	}
	done, err := r.upstreams().Allow(ex.agent)
	if err == nil {
		w.judge = done
		return nil
	}
	if w.open {
		return nil
	}
	e := agent.AsError(err)
	return e.With("member", w.step.GetMember())
}

// judged says what an attempt's end says of who was called. A call that was ended
// from above says nothing; one that took too long does.
func (r *runner) judged(ctx context.Context, w *work, res result) {
	if w.judge == nil {
		return
	}
	verdict := agent.JudgementOf(res.err)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStepTimeout):
		verdict = agent.JudgementFailed
	case cause != nil, errors.Is(res.err, errStopped):
		verdict = agent.JudgementNone
	}
	w.judge(verdict)
	w.judge = nil
}

// repeatable reports whether who failed may be called again so soon, and counts
// the repetition.
func (r *runner) repeatable(ex *executor, e *agent.Error) bool {
	return e.RetryAfter <= maxRetryAfter && (ex.agent == "" || r.upstreams().Open(ex.agent) == "") && r.upstreams().MayRetry(ex.upstream)
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

// logFailure writes down why a member did not succeed: the scheduler may make
// something else of it.
func (r *runner) logFailure(w *work, e *teamv1.Ended) {
	if !agent.IsDelegation(w.step.GetKind()) || e.GetError() == nil || e.GetOutcome() == teamv1.Outcome_OUTCOME_SKIPPED {
		return
	}
	r.cfg.Log.Warn("member did not succeed", zap.String("team", r.cfg.ID), zap.String("member", w.step.GetMember()),
		zap.String("scope", w.scope), zap.String("outcome", e.GetOutcome().String()),
		zap.String("reason", e.GetError().GetReason()), zap.String("message", e.GetError().GetMessage()))
}
