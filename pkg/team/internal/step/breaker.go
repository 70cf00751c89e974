package step

import (
	"context"
	"errors"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Upstreams has the methods of team.Upstreams, where they are documented. This package cannot
// import pkg/team.
type Upstreams interface {
	Allow(account, agentID string) (done func(agent.Judgement), err error)
	Open(account, agentID string) string
	Called(account, upstream string)
	Retry(account, upstream string) (wait time.Duration, err error)
}

// maxRetryAfter is the longest pause that a callee may ask for. If it asks for more, there is no
// retry.
const maxRetryAfter = time.Minute

// breaker asks the circuit breaker right before an attempt whether the agent may be called, and
// reports the outcome afterwards.
func breaker(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		report, err := w.admit()
		if err != nil {
			return w.refused(err)
		}
		verdict := agent.JudgementNone // also when the agent panics
		defer func() { report(verdict) }()
		w.heard = false
		began := w.by.Run.Now()
		res := next(ctx, w)
		if !res.notStarted {
			verdict = judgement(ctx, res.Err, w.by.Run.Now().Sub(began), w.heard)
		}
		return res
	}
}

// leastSilence is how long a call must have lasted without an answer to count as failed. What ends
// sooner does so because its caller gave it little time.
const leastSilence = time.Second

// breakerID returns the id of the agent whose breaker counts a step; empty if none does. Starting
// a detached task says nothing about the agent, and a target with rounds has steps that do. A team
// has none either: the breakers of its members say which of them are down.
func (t *Target) breakerID(step *teamv1.Step) string {
	if _, isTeam := t.Agent.(agent.Composite); isTeam || step.GetDetached() || t.Rounds {
		return ""
	}
	return t.AgentID
}

// admit returns why the agent may not be called; if it may, it returns what reports the outcome to the breaker. An attempt
// that began before a crash is continued even if the breaker is open.
func (w *Work) admit() (report func(agent.Judgement), err error) {
	report = func(agent.Judgement) {}
	if w.Attempts == 0 && w.Target.Leaf {
		w.by.Upstreams.Called(w.by.Run.Account(), w.Target.Upstream)
	}
	if why := w.by.openBreaker(w.Target.AgentID); w.Target.Rounds && w.Attempts == 0 && why != "" {
		return nil, agent.Errorf(agent.CodeUnavailable, agent.ReasonBreakerOpen,
			"agent %q is temporarily not called: %s; try again later", w.Target.AgentID, why).With("member", w.Step.GetMember())
	}
	id := w.Target.breakerID(w.Step)
	if id == "" {
		return report, nil
	}
	done, err := w.by.Upstreams.Allow(w.by.Run.Account(), id)
	switch {
	case err == nil:
		return done, nil
	case w.Open:
		return report, nil
	}
	return nil, agent.AsError(err).With("member", w.Step.GetMember())
}

// judgement returns what the end of an attempt says about the callee. A call that was ended from
// above says nothing about it. A call that ran out of time counts as failed only if the callee was
// silent: after its first event, which heard reports, it works, and how long depends on its input.
func judgement(ctx context.Context, err error, lasted time.Duration, heard bool) agent.Judgement {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errTimeout):
		err = errTimeout
	case cause != nil, errors.Is(err, ErrStopped):
		return agent.JudgementNone
	}
	verdict := agent.JudgementOf(err)
	switch {
	case verdict != agent.JudgementFailed || agent.AsError(err).Code != agent.CodeDeadlineExceeded:
		return verdict
	case heard:
		return agent.JudgementAnswered
	case lasted < leastSilence:
		return agent.JudgementNone
	}
	return verdict
}

// openBreaker returns why an agent is not called for the account of the run; empty if it may be.
func (r *Runner) openBreaker(id string) string { return r.Upstreams.Open(r.Run.Account(), id) }
