package team

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// work is a step as call sees it: copies, so that it never reads the state.
type work struct {
	step      *teamv1.Step
	index     int
	round     int
	scope     string
	input     *a2av1.Message
	history   []*a2av1.Message
	transfers []*teamv1.TransferTarget
	prompt    *agent.ModelRequest
	arguments string
	recorded  []*teamv1.Event
	asked     questions
	attempts  int32
	failures  int64
	open      bool
	loop      bool  // the member has steps of its own
	unknown   bool  // an attempt before has an outcome that nobody here knows
	unsafe    bool  // a second attempt would be a second effect
	questions int64 // its own so far
	ruling    *a2av1.Message
	check     *evidence
	effect    string // key of the effect under way, once it is known
	checks    stepChecks
	deadline  time.Time
	notBefore time.Time
	begins    time.Time             // when the loop looked at the clock for all that begin with it
	peers     int                   // members that share what is left of the budget, itself included
	budget    *agent.Budget         // that binds the attempt; nil is no limit
	hold      *agent.Budget         // what is reserved for the attempt; nil is nothing
	reserved  *teamv1.Spent         // the same, as it stands on record
	maxOutput int64                 // tokens that the answer may have; 0 is no limit
	spent     *teamv1.Spent         // on attempts that were repeated
	lost      *teamv1.Spent         // on the last one that failed
	judge     func(agent.Judgement) // takes what the attempt says of who was called; nil is nobody
}

// emitter yields an event of a step's scope or below; errStopped ends the step.
type emitter func(ev *teamv1.Event) error

// result is how an attempt ended: with a reply, parked, or with an error.
type result struct {
	reply  *teamv1.Reply
	parked bool
	err    error
}

// runner runs the steps of one call of Process. Goroutines of steps have it and their
// work, and neither leads to the state. Once the loop runs it does not change, but for
// what the loop notes of itself: goroutines have a copy.
type runner struct {
	*Loop
	req      *teamv1.ProcessRequest
	run      *agent.Run
	gate     *gate // nil where nobody judges the result
	scope    string
	path     string
	sets     map[string]agent.Tool // what tool sets offer now, by name
	spending *spending             // nil where nothing limits it
	counting *counting             // nil where nothing limits it
	inYield  bool                  // control is with the consumer of the loop, which is at work itself: a panic is its own
}

// errStepTimeout: the time of a step ran out.
var errStepTimeout = agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "the step's time ran out")

// call is the one place that starts effects: members, model turns and tools
// alike. It records the start, makes it durable, makes one attempt after the
// other, and records the end. A returned error other than errStopped is the
// journal's: nothing more may be done.
func (r *runner) call(ctx context.Context, w *work, emit emitter) error {
	ex, err := r.executor(ctx, w, emit)
	if err != nil {
		return r.emitEnd(w, emit, endedWith(err, teamv1.Outcome_OUTCOME_REJECTED))
	}
	if w.step.GetKind() == teamv1.Step_KIND_MODEL && w.prompt == nil {
		return agent.Errorf(agent.CodeInternal, agent.ReasonSchedulerError, // an error of the run: no result of the step could correct it
			"the scheduler of team %q decided on a model step and gave no request for it; return a request from its method Prompt", r.cfg.ID)
	}
	w.loop = !ex.leaf
	if w.deadline.IsZero() && ex.timeout > 0 {
		w.deadline = w.begins.Add(ex.timeout)
	}
	sctx, stop := r.stepContext(ctx, w)
	defer stop()
	if over, err := r.checkGiven(ctx, sctx, w, emit); over || err != nil {
		return err
	}
	defer r.leave(w)
	for {
		switch held, err := r.rest(sctx, w); {
		case err != nil:
			return r.fail(ctx, w, emit, r.withdraw(sctx, w, ex, err))
		case held:
			return r.hold(w, emit)
		}
		if err := r.reserve(sctx, w, ex); err != nil {
			return r.refuse(ctx, w, emit, r.withdraw(sctx, w, ex, err))
		}
		if err := r.admit(w, ex); err != nil {
			return r.refuse(ctx, w, emit, r.withdraw(sctx, w, ex, err))
		}
		resumed := r.run.Resumed()
		if over, err := r.begin(ctx, sctx, w, ex, emit); over {
			return err
		}
		res := ex.attempt(w.bound(sctx), r.key(w))
		if ex.leaf {
			r.logCause(w, res.err)
		}
		r.settle(w, ex, &res)
		r.judged(sctx, w, res)
		res = r.checkResult(sctx, w, emit, res)
		switch {
		case errors.Is(res.err, errStopped):
			return errStopped
		case res.err == nil && res.parked:
			return r.emitParked(w, emit, r.run.PausedSince(resumed))
		case res.err == nil:
			return r.emitEnd(w, emit, r.endOf(w, res.reply))
		case sctx.Err() == nil && r.mayRetry(w, ex, res.err):
			if err := r.retry(w, ex, emit, res.err); err != nil {
				return err
			}
		case sctx.Err() == nil && givenUp(w, res.err) != nil:
			return r.emitEnd(w, emit, r.endOf(w, givenUp(w, res.err)))
		default:
			return r.fail(ctx, w, emit, r.endOfAttempt(sctx, w, ex, res.err))
		}
	}
}

// logCause logs why the target of an attempt failed, with its address. A2A callers do
// not see these details.
func (r *runner) logCause(w *work, err error) {
	var e *agent.Error
	if errors.As(err, &e) && e.Err != nil && e.Code == agent.CodeUnavailable {
		r.cfg.Log.Warn("attempt failed", zap.String("agent", r.path), zap.String("step", w.scope), zap.Error(err))
	}
}

// begin makes the start of an attempt durable, unless the run is paused. over: there
// is to be no attempt, and the step is dealt with. A loop that has begun looks for
// the pause itself: it may have to close something.
func (r *runner) begin(ctx, sctx context.Context, w *work, ex *executor, emit emitter) (over bool, err error) {
	begun, ok := r.run.Enter()
	switch {
	case ok:
	case w.loop && w.open:
		return false, nil
	default:
		return true, r.hold(w, emit)
	}
	if err := r.counting.take(w); err != nil {
		begun()
		return true, r.refuse(ctx, w, emit, err)
	}
	err = r.commitStart(ctx, w, ex, emit, begun)
	switch {
	case err == nil && r.run.HeldBack(): // the pause did not wait for it
		return true, r.hold(w, emit)
	case err == nil:
		return false, nil
	case ctx.Err() != nil, errors.Is(err, agent.ErrCanceled):
		return true, r.fail(ctx, w, emit, r.withdraw(sctx, w, ex, err))
	}
	return true, err
}

// commitStart makes the start durable; begun is called also when the consumer panics.
func (r *runner) commitStart(ctx context.Context, w *work, ex *executor, emit emitter, begun func()) error {
	defer begun()
	if !w.open {
		if err := r.start(w, ex, emit); err != nil {
			return err
		}
	}
	if err := agent.Commit(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return r.run.Begin(w.scope) // canceled while the start was made durable
}

// hold leaves a step that the run's pause keeps from beginning, or from beginning
// again: its clock stands.
func (r *runner) hold(w *work, emit emitter) error {
	if w.attempts == 0 {
		return nil
	}
	return r.emitParked(w, emit, true)
}

// emitParked records that nothing of a step goes on: it waits for people, or is held.
func (r *runner) emitParked(w *work, emit emitter, held bool) error {
	return emit(r.stepEvent(w, &teamv1.Event{Kind: &teamv1.Event_Waiting{Waiting: &teamv1.Waiting{Questions: w.asked.ids(), Paused: held}}}))
}

// endOfAttempt is why a step ends with an attempt that failed: the end of its
// context, where that came. An attempt that has seen it says what it did about it.
func (r *runner) endOfAttempt(ctx context.Context, w *work, ex *executor, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil || errors.Is(err, cause):
		return err
	case !ex.leaf || agent.AsError(err).Fresh: // it was over, and all below it
		return cause
	}
	w.unknown = true
	return r.withdraw(ctx, w, ex, cause)
}

// rest waits until the next attempt may begin. held: the run was paused before that,
// and may have been resumed.
func (r *runner) rest(ctx context.Context, w *work) (held bool, err error) {
	left := w.notBefore.Sub(r.run.Now())
	if w.notBefore.IsZero() || left <= 0 || ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.run.Shutting():
		held = true
	case <-ctx.Done():
	}
	return held, context.Cause(ctx)
}

// stepContext is the context a step works in: its time, and its cancel by id.
func (r *runner) stepContext(ctx context.Context, w *work) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := r.run.Cancellable(w.scope, cancel)
	stop := func() { release(); cancel(nil) }
	if w.deadline.IsZero() {
		return ctx, stop
	}
	left := w.deadline.Sub(r.run.Now())
	tctx, tstop := context.WithTimeoutCause(ctx, left, errStepTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(time.Now().Add(left)) { // the deadline of the run, which may move; tctx has no timer
		late := time.AfterFunc(left, func() { cancel(errStepTimeout) })
		return tctx, func() { late.Stop(); tstop(); stop() }
	}
	return tctx, func() { tstop(); stop() }
}

// start records that an attempt begins.
func (r *runner) start(w *work, ex *executor, emit emitter) error {
	w.attempts++
	started := &teamv1.Started{Attempt: w.attempts, Model: ex.model, Key: r.key(w), Input: w.checks.givenInput(), Reserved: w.reserved}
	if !w.deadline.IsZero() {
		started.Deadline = timestamppb.New(w.deadline)
	}
	w.open = true
	return emit(r.stepEvent(w, &teamv1.Event{Kind: &teamv1.Event_Started{Started: started}}))
}

// key is the key of the step's effect: the same until an attempt's failure is known.
func (r *runner) key(w *work) string {
	if w.effect == "" {
		w.effect = r.run.ID(w.scope, "key", w.failures+1)
	}
	return w.effect
}

// mayRetry reports whether an attempt is repeated: only leaves are, under the
// policy of the delegation they work for.
func (r *runner) mayRetry(w *work, ex *executor, err error) bool {
	e := agent.AsError(err)
	return ex.leaf && e.Retry && w.attempts < ex.retry.attempts && r.repeatable(ex, e)
}

// retry records that the attempt failed and when the next one starts.
func (r *runner) retry(w *work, ex *executor, emit emitter, err error) error {
	e := agent.AsError(err)
	w.notBefore = r.run.Now().Add(r.backoff(w, ex.retry.backoff, e.RetryAfter))
	w.spent, w.lost = agent.AddSpent(w.spent, w.lost), nil
	w.open, w.unknown = false, !e.Fresh
	if e.Fresh {
		w.failures++
		w.effect = ""
		w.recorded, w.asked = nil, nil
	}
	return emit(r.stepEvent(w, &teamv1.Event{Kind: &teamv1.Event_Retried{Retried: &teamv1.Retried{
		Attempt: w.attempts, Error: e.Proto(), Fresh: e.Fresh, NotBefore: timestamppb.New(w.notBefore), Spent: e.Spent,
	}}}))
}

// maxBackoff bounds a pause between attempts: it is as good as no further attempt,
// and can be reckoned with.
const maxBackoff = 365 * 24 * time.Hour

// backoff is the pause after a failed attempt: doubled each time up to maxBackoff,
// with up to a quarter more at random, and no shorter than the callee asked for.
func (r *runner) backoff(w *work, base, atLeast time.Duration) time.Duration {
	d := base
	for range min(w.attempts-1, 20) {
		d = min(d, maxBackoff/2) * 2
	}
	d = min(d, maxBackoff)
	h := fnv.New64a()
	_, _ = h.Write([]byte(w.scope))
	random := rand.New(rand.NewPCG(uint64(r.run.Seed), h.Sum64()+uint64(w.attempts))) //nolint:gosec // jitter, not a secret
	d += time.Duration(random.Int64N(int64(d)/4 + 1))
	return max(d, atLeast)
}

// refuse records that a step was not begun, or not again: a limit does not cover
// it, or the member is not called for now.
func (r *runner) refuse(ctx context.Context, w *work, emit emitter, err error) error {
	switch reason := agent.AsError(err).Reason; {
	case w.attempts > 0:
	case agent.Binds(agent.AsError(err), r.path), reason == agent.ReasonBreakerOpen, reason == agent.ReasonMaxHandoffs:
		return r.emitEnd(w, emit, endedWith(err, teamv1.Outcome_OUTCOME_REJECTED))
	}
	return r.fail(ctx, w, emit, err)
}

// leave gives back what an attempt holds that did not come to its end.
func (r *runner) leave(w *work) {
	w.giveBack()
	if w.judge != nil {
		w.judge(agent.JudgementNone)
	}
}

// fail records that a step did not succeed. ctx is the run's context: when that
// one ended, the step was ended from above.
func (r *runner) fail(ctx context.Context, w *work, emit emitter, err error) error {
	cause := context.Cause(ctx)
	switch {
	case gone(cause), errors.Is(err, errStopped):
		return errStopped
	case ctx.Err() == nil && errors.Is(err, errStepTimeout):
		if err := emit(r.stepEvent(w, &teamv1.Event{Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: limitOf(w.step)}}})); err != nil {
			return err
		}
		late := agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "member %q did not finish in time (%s); raise it, or give it less to do", w.step.GetMember(), limitNamed(w.step))
		late.Spent = agent.AsError(err).Spent
		return r.emitEnd(w, emit, endedWith(late, teamv1.Outcome_OUTCOME_TIMED_OUT))
	}
	outcome := teamv1.Outcome_OUTCOME_FAILED
	e := agent.AsError(err)
	switch {
	case errors.Is(err, agent.ErrCanceled), e.Reason == agent.ReasonCanceled && !w.loop: // not for a member of it that was
		outcome = teamv1.Outcome_OUTCOME_CANCELED
	case e.Reason == agent.ReasonTimeout:
		outcome = teamv1.Outcome_OUTCOME_TIMED_OUT
	case e.Reason == agent.ReasonGuardrailBlocked:
		outcome = teamv1.Outcome_OUTCOME_REJECTED
	}
	return r.emitEnd(w, emit, endedWith(e, outcome))
}

// limitOf is the limit that bounds the time of a step.
func limitOf(step *teamv1.Step) string {
	if step.GetKind() == teamv1.Step_KIND_TRANSFER || RefusedTransfer(step) != "" {
		return agent.LimitNodeTimeout
	}
	return agent.LimitMemberTimeout
}

// limitNamed is that limit as people find it in the file.
func limitNamed(step *teamv1.Step) string {
	if limit := limitOf(step); limit != agent.LimitMemberTimeout || step.GetTimeout() == nil {
		return limit
	}
	return "timeout of the step"
}

// endedWith is the end of a step that did not succeed.
func endedWith(err error, outcome teamv1.Outcome) *teamv1.Ended {
	e := agent.AsError(err)
	return &teamv1.Ended{Outcome: outcome, Error: e.Proto(), Spent: e.Spent, Receipt: e.Receipt}
}

// endOf is the end of a step that replied.
func (r *runner) endOf(w *work, reply *teamv1.Reply) *teamv1.Ended {
	e := &teamv1.Ended{Outcome: reply.GetOutcome(), Spent: reply.GetSpent(), Evidence: reply.GetEvidence(), Warnings: reply.GetWarnings()}
	switch k := reply.GetResult().(type) {
	case *teamv1.Reply_Message:
		if reply.GetRef() > 0 {
			e.Result = &teamv1.Ended_ReplyRef{ReplyRef: reply.GetRef()}
		} else {
			e.Result = &teamv1.Ended_Reply{Reply: r.run.Completed(w.scope, k.Message)}
		}
		if e.Outcome == teamv1.Outcome_OUTCOME_UNSPECIFIED && agent.Text(k.Message) == "" && onlyText(k.Message) {
			e.Outcome = teamv1.Outcome_OUTCOME_EMPTY
		}
	case *teamv1.Reply_Turn:
		e.Result = &teamv1.Ended_Turn{Turn: k.Turn}
	case *teamv1.Reply_Tool:
		e.Result = &teamv1.Ended_Tool{Tool: k.Tool}
	case *teamv1.Reply_Transfer:
		e.Result = &teamv1.Ended_Transfer{Transfer: k.Transfer}
	}
	if w.step.GetKind() == teamv1.Step_KIND_JUDGE {
		e.Verdict = verdictOf(reply)
	}
	if e.Outcome == teamv1.Outcome_OUTCOME_UNSPECIFIED {
		e.Outcome = teamv1.Outcome_OUTCOME_SUCCEEDED
	}
	return e
}

// emitEnd records the end of a step.
func (r *runner) emitEnd(w *work, emit emitter, e *teamv1.Ended) error {
	r.logFailure(w, e)
	return emit(r.stepEvent(w, &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: w.costs(e)}}))
}

// stepEvent completes an event of a step. Its path ends with the member.
func (r *runner) stepEvent(w *work, ev *teamv1.Event) *teamv1.Event {
	ev.Scope, ev.Agent = w.scope, r.path
	if agent.IsDelegation(w.step.GetKind()) || w.step.GetKind() == teamv1.Step_KIND_JUDGE {
		ev.Agent += "/" + w.step.GetMember()
	}
	return ev
}
