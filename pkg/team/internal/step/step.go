// Package step runs the steps of a team: it calls members, models, tools and judges, and
// puts on record what becomes of the calls. It is the one place that starts effects.
//
// A step is an attempt with layers around it, see layers. Each layer is in the file that
// is named after it. The layers read the [Work], never the state of the loop.
package step

import (
	"context"
	"errors"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/guards"
)

// Attempt makes one attempt of a step. A layer turns an Attempt into another one, so the
// outermost runs the whole step. ctx is the context of the step;
// for the outermost layer it is that of the run.
type Attempt func(ctx context.Context, w *Work) Result

// Layer adds something to an attempt.
type Layer func(next Attempt) Attempt

// Chain returns an attempt with layers around it. The first layer is the outermost.
func Chain(a Attempt, layers ...Layer) Attempt {
	for i := len(layers) - 1; i >= 0; i-- {
		a = layers[i](a)
	}
	return a
}

// layers runs a step: an attempt with everything around it. It has no state of its own.
var layers = Chain(attempt,
	deadline,    // bounds all attempts, and makes the step cancelable
	guardGiven,  // middlewares look at what a member is given
	retry,       // waits for the next attempt, and repeats what failed
	guardResult, // middlewares look at what a member has answered
	budget,      // reserves what an attempt may cost, and books what it has cost
	breaker,     // asks whether the member may be called, and says how it went
	begin,       // unless paused: takes the counters, records Started, commits, looks for a cancel
)

// ErrStopped says that the consumer broke off, or that nothing more may be recorded.
var ErrStopped = errors.New("stopped")

// Result is how an attempt ended: with a reply, with an error, or with neither: then the
// step waits for people, or for the run to be resumed.
type Result struct {
	Reply *teamv1.Reply
	Err   error

	held     bool // it waits for the run to be resumed
	rejected bool // with Err: the step ends REJECTED
	unbegun  bool // no attempt was made
	fatal    bool // Err is the run's, or the journal's: nothing more is recorded
}

// waits reports whether a step has not come to its end.
func (r *Result) waits() bool { return r.Err == nil && r.Reply == nil }

// stopped is the result of a step of which nothing more can be recorded.
func stopped(err error) Result { return Result{Err: err, unbegun: true, fatal: true} }

// Runner runs the steps of one call of Process. The loop sets all fields before the first
// step; none changes while steps run, so that their goroutines can share it.
type Runner struct {
	guards.Owner

	// Scope of the call.
	Scope string
	// Request of the call.
	Request *teamv1.ProcessRequest
	// Above are the ids of the agents above the members: the path of their requests, which
	// share it. There is no room behind it.
	Above []string
	// Guards are the middlewares of the team.
	Guards *agent.Guards
	// Tools that TOOL steps call.
	Tools Tools
	// Upstreams know how calls went of late.
	Upstreams Upstreams
	// Budget binds the run; nil is no limit.
	Budget *Budget
	// Counters bind the run; nil is no limit.
	Counters *Counters
	// Silent withholds the text of models while it comes.
	Silent bool
	// Wakes says that the end of a detached task begins a run of the team.
	Wakes bool
}

// Do runs a step: it records the start, makes it durable, makes one attempt after the
// other, and records the end. A returned error other than ErrStopped is the journal's, or
// one that ends the run: nothing more may be done. Goroutines may call it, each with a Work
// of its own.
func (r *Runner) Do(ctx context.Context, w *Work) error {
	w.by, w.run = r, ctx
	if w.Refused != nil {
		return w.end(EndedWith(w.Refused, teamv1.Outcome_OUTCOME_REJECTED))
	}
	if w.Step.GetKind() == teamv1.Step_KIND_MODEL && w.Prompt == nil {
		return agent.Errorf(agent.CodeInternal, agent.ReasonSchedulerError, // an error of the run: no result of the step could correct it
			"the scheduler of team %q decided on a model step and gave no request for it; return a request from its method Prompt", r.ID)
	}
	w.reopen()
	return w.finish(layers(ctx, w))
}

// Close has a member close what it has open of a step, and records the step's end.
// Goroutines may call it, each with a Work of its own.
func (r *Runner) Close(ctx context.Context, w *Work) error {
	w.by, w.run = r, ctx
	if gone(context.Cause(ctx)) {
		return ErrStopped
	}
	end := agent.ErrCanceled
	if w.Refused == nil {
		end = withdraw(ctx, w, end)
	}
	if errors.Is(end, ErrStopped) {
		return ErrStopped
	}
	return w.end(EndedWith(end, teamv1.Outcome_OUTCOME_CANCELED))
}

// End records the end of a step that needs no work.
func (r *Runner) End(w *Work, e *teamv1.Ended) error {
	w.by = r
	return w.end(e)
}

// Event completes an event of a step. Its path ends with the member.
func (r *Runner) Event(step *teamv1.Step, scope string, ev *teamv1.Event) *teamv1.Event {
	ev.Scope, ev.Agent = scope, r.path(step)
	return ev
}

// path is that of a step's events.
func (r *Runner) path(step *teamv1.Step) string {
	if agent.IsDelegation(step.GetKind()) || step.GetKind() == teamv1.Step_KIND_JUDGE {
		return r.Path + "/" + step.GetMember()
	}
	return r.Path
}
