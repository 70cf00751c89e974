package step

import (
	"context"
	"errors"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// Upstreams is the interface of that name of pkg/team, where its methods are documented;
// this package cannot import it.
type Upstreams interface {
	Allow(agentID string) (done func(agent.Judgement), err error)
	Open(agentID string) string
	Called(upstream string)
	MayRetry(upstream string) bool
}

// maxRetryAfter is the longest pause that a callee may ask for: who wants to be
// left alone for longer is not called again.
const maxRetryAfter = time.Minute

// breaker asks right before an attempt whether the member may be called, and says
// afterwards how it went.
func breaker(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		if err := w.admit(); err != nil {
			return w.refused(err)
		}
		defer w.judged(agent.JudgementNone)
		res := next(ctx, w)
		if !res.unbegun {
			w.judged(judgement(ctx, res.Err))
		}
		return res
	}
}

// breakerID is the id of the agent whose breaker counts the step; empty: none does. A
// detached step says nothing of the agent.
func (w *Work) breakerID() string {
	if w.Step.GetDetached() {
		return ""
	}
	return w.Target.AgentID
}

// admit returns why the member may not be called. What has begun before a crash goes on in
// any case.
func (w *Work) admit() error {
	if w.Attempts == 0 && w.Target.Leaf {
		w.by.Upstreams.Called(w.Target.Upstream)
	}
	id := w.breakerID()
	if id == "" {
		return nil
	}
	done, err := w.by.Upstreams.Allow(id)
	if err == nil {
		w.judge = done
		return nil
	}
	if w.Open {
		return nil
	}
	e := agent.AsError(err)
	return e.With("member", w.Step.GetMember())
}

// judgement is what an attempt's end says of who was called. A call that was ended
// from above says nothing; one that took too long does.
func judgement(ctx context.Context, err error) agent.Judgement {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeout):
		return agent.JudgementFailed
	case cause != nil, errors.Is(err, ErrStopped):
		return agent.JudgementNone
	}
	return agent.JudgementOf(err)
}

// judged tells the breaker, once.
func (w *Work) judged(verdict agent.Judgement) {
	if w.judge != nil {
		w.judge(verdict)
		w.judge = nil
	}
}

// repeatable reports whether who failed may be called again so soon, and counts
// the repetition.
func (w *Work) repeatable(e *agent.Error) bool {
	id := w.breakerID()
	return e.RetryAfter <= maxRetryAfter && (id == "" || w.by.Upstreams.Open(id) == "") && w.by.Upstreams.MayRetry(w.Target.Upstream)
}
