// Package step runs the steps of a team: it calls members, models, tools and judges, and records
// the outcome. All effects of a run start here.
//
// A step is an attempt wrapped in layers; see layers. Each layer is in the file that has its name.
// Layers read the [Work], never the state of the loop.
package step

import (
	"context"
	"errors"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/guards"
)

// Attempt makes one attempt of a step. A layer wraps an Attempt in another one, so the outermost
// Attempt runs the whole step. ctx is the context of the step, for the outermost layer that of the
// run.
type Attempt func(ctx context.Context, w *Work) Result

// Layer wraps an attempt.
type Layer func(next Attempt) Attempt

// chain wraps an attempt in layers. The first layer is the outermost.
func chain(a Attempt, layers ...Layer) Attempt {
	for i := len(layers) - 1; i >= 0; i-- {
		a = layers[i](a)
	}
	return a
}

// layers runs a step: an attempt in all its layers. It is stateless.
var layers = chain(attempt,
	deadline,    // bounds the time of all attempts, and makes the step cancelable
	guardGiven,  // passes what a member is given through middlewares
	media,       // refuses files that a member does not take
	approve,     // asks people whether a call may begin
	retry,       // waits for the next attempt, and repeats failed ones
	guardResult, // passes the answer of a member through middlewares
	memory,      // waits until there is memory for a large request
	budget,      // reserves the maximum cost of an attempt, and books the actual cost
	breaker,     // asks the circuit breaker, and reports the outcome
	begin,       // unless paused: counts the step, records Started, commits, checks for a cancel
)

// ErrStopped is the error of a step that ended without a record, because the consumer broke off or
// nothing more may be recorded.
var ErrStopped = errors.New("stopped")

// Result is how an attempt ended: with a reply, with an error, or with neither. In the last case
// the step waits for people, or for the run to be resumed.
type Result struct {
	Reply *teamv1.Reply
	Err   error

	paused     bool // the step waits for the run to be resumed
	rejected   bool // with Err: the step ends as REJECTED
	notStarted bool // no attempt was made
	fatal      bool // Err ends the run, or is the journal's: nothing more is recorded
}

// waits reports whether the step has neither a reply nor an error.
func (r *Result) waits() bool { return r.Err == nil && r.Reply == nil }

// stopped returns the result of a step for which nothing more can be recorded.
func stopped(err error) Result { return Result{Err: err, notStarted: true, fatal: true} }

// Runner runs the steps of one call of Process. The loop sets all fields before the first step.
// None changes while steps run, so the goroutines of steps share the Runner.
type Runner struct {
	guards.Owner

	// Scope of the call.
	Scope string
	// Request that the call was made with.
	Request *teamv1.ProcessRequest
	// Above are the ids of the agents above the members, outermost first. It is the path of
	// their requests, which share the slice, so its capacity must equal its length.
	Above []string
	// Guards are the middlewares of the team.
	Guards *agent.Guards
	// Tools that TOOL steps call.
	Tools Tools
	// Upstreams are circuit breakers and retry budgets.
	Upstreams Upstreams
	// Budget bounds the run, and values its model turns.
	Budget *Budget
	// Counters bound the run; nil means no limit.
	Counters *Counters
	// Silent suppresses the events of streamed model text.
	Silent bool
	// AcceptTruncated takes turns whose text was cut by a limit of tokens.
	AcceptTruncated bool
	// Wakes says that the end of a detached task starts a run of the team.
	Wakes bool
}

// Do runs a step: it records the start, makes it durable, makes attempts, and records the end. An
// error other than ErrStopped comes from the journal or ends the run: nothing more may be done
// then. Do is safe for concurrent use with different Works.
func (r *Runner) Do(ctx context.Context, w *Work) error {
	w.by, w.run = r, ctx
	r.Budget.takeOver(w)
	defer func() { w.cost.release(w.Step) }()
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

// Close has the target of a step close its open work, and records the end of the step as CANCELED.
// It is safe for concurrent use with different Works.
func (r *Runner) Close(ctx context.Context, w *Work) error {
	w.by, w.run = r, ctx
	r.Budget.takeOver(w)
	defer func() { w.cost.release(w.Step) }()
	if stopsRecording(context.Cause(ctx)) {
		return ErrStopped
	}
	end := agent.ErrCanceled
	if w.Refused == nil {
		end = closeOpen(ctx, w, end)
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

// Event sets the scope and agent of an event of a step.
func (r *Runner) Event(step *teamv1.Step, scope string, ev *teamv1.Event) *teamv1.Event {
	ev.Scope, ev.Agent = scope, r.path(step)
	return ev
}

// path returns the agent path of a step's events. It ends with the member, if a member or a judge
// works.
func (r *Runner) path(step *teamv1.Step) string {
	if agent.IsDelegation(step.GetKind()) || step.GetKind() == teamv1.Step_KIND_JUDGE {
		return r.Path + "/" + step.GetMember()
	}
	return r.Path
}
