package remote

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// lateWait is the timeout for canceling the peer's task after the call has exceeded a limit. The
// caller does not use the outcome.
const lateWait = time.Second

// withdrawn is the result of canceling a peer's task.
type withdrawn struct {
	none         bool          // the peer has no task
	confirmed    bool          // the peer's task has ended
	result       bool          // it may have a result
	spent, after *teamv1.Spent // in total, and after the cancel; nil if unknown
}

// over reports whether the end of ctx must still be handled at the peer. That is not so after a
// reply, and not if the consumer has stopped the sequence.
func (c *call) over(err error) bool {
	return c.ctx.Err() != nil && !c.settled && !c.replied && !errors.Is(err, errLeft)
}

// end handles the end of ctx and returns the error of the call. After a cancel it calls stop to
// cancel the peer's task, with the timeout wait. After a limit was exceeded it does so only briefly
// and ignores the result; after a peer was silent for too long it does so briefly too. task returns
// the peer's task, nil if it is not known.
func (c *call) end(id string, wait time.Duration, task func() *teamv1.Bound, stop func(ctx context.Context) withdrawn) error {
	c.settled = true
	cause := context.Cause(c.ctx)
	c.late = outOfTime(cause)
	switch silent := c.silent(cause); {
	case silent && !c.sent && task() == nil:
		return c.tooSilent(withdrawn{none: true})
	case !c.late && !silent && !errors.Is(cause, agent.ErrCanceled), !c.sent && task() == nil: // or nothing was sent
		return cause
	case silent:
		b := proto.CloneOf(task())
		if b == nil {
			b = &teamv1.Bound{}
		}
		if err := c.noteSilence(b); err != nil {
			return err
		}
		wait = min(wait, silentWait)
	case c.late:
		wait = min(wait, lateWait)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), wait)
	defer cancel()
	w := stop(ctx)
	switch {
	case c.late:
		return cause
	case c.silent(cause):
		return c.tooSilent(w)
	}
	return c.canceled(id, task().GetTaskId(), w)
}

// refuses reports whether a call ends with err although the peer may go on with its task, whose result is not used: what
// the peer has sent was not accepted, or the consumer has stopped the sequence because the call is over.
func (c *call) refuses(err error) bool {
	if !c.sent || c.settled || c.replied || taskstate.Final(c.state) {
		return false
	}
	cause := context.Cause(c.ctx)
	return err != nil && agent.AsError(err).Reason == reasonInvalidResponse ||
		errors.Is(err, errLeft) && cause != nil && (outOfTime(cause) || errors.Is(cause, agent.ErrCanceled))
}

// withdraw calls stop to cancel the peer's task, once and without an outcome for the caller.
func (c *call) withdraw(stop func(ctx context.Context)) {
	c.settled, c.late = true, true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), lateWait)
	defer cancel()
	stop(ctx)
}

// outOfTime reports whether a call ended because it exceeded a limit, so that it is not continued
// later.
func outOfTime(cause error) bool {
	reason := agent.AsError(cause).Reason
	return reason == agent.ReasonTimeout || reason == agent.ReasonJournalLimit
}

// canceled returns the error of a canceled call, with a receipt for the peer's task.
func (c *call) canceled(id, task string, w withdrawn) error {
	e := canceled(id, w.confirmed || w.none)
	if w.none {
		return e
	}
	entry := &teamv1.Receipt_Entry{
		Scope: c.req.GetScope(), Agent: agent.Path(c.req), RemoteTaskId: task, LastAction: "sent its message; the task is not known",
		SpentAfter: w.after, Confirmed: w.confirmed, Unconfirmed: !w.confirmed, Outcome: teamv1.Outcome_OUTCOME_CANCELED,
	}
	if task != "" {
		entry.LastAction = "remote task " + max(c.state, a2av1.TaskState_TASK_STATE_SUBMITTED).String()
	}
	e.Spent = w.spent
	e.Receipt = &teamv1.Receipt{Entries: []*teamv1.Receipt_Entry{entry}, SpentAfter: w.after}
	return e
}

// Reap implements agent.Reaper. It cancels the task that was begun with the call's key.
func (a *Agent) Reap(ctx context.Context, req *teamv1.ProcessRequest) error {
	p := newProcess(a, newCall(ended(ctx), req, nil))
	p.sent = true
	return p.ended(nil)
}

// Reap implements agent.Reaper. A task with an unknown id cannot be canceled over A2A; the receipt
// says that there may be one.
func (a *A2A) Reap(ctx context.Context, req *teamv1.ProcessRequest) error {
	c := newCall(ended(ctx), req, nil)
	return c.canceled(a.cfg.ID, "", withdrawn{})
}

// ended returns a canceled copy of ctx.
func ended(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(agent.ErrCanceled)
	return ctx
}

// ended handles the end of the call's context and returns the error of the call. next reads the id
// of the peer's task if it is not known; nil if it cannot be read.
func (p *process) ended(next nextID) error {
	return p.end(p.agent.cfg.ID, p.agent.cfg.CancelWait, p.task, func(ctx context.Context) withdrawn {
		return p.cancelPeer(ctx, next)
	})
}

// task returns the peer's task, nil while it is not known.
func (p *process) task() *teamv1.Bound { return p.bound }

// task returns the peer's task, nil while it is not known.
func (x *exchange) task() *teamv1.Bound { return x.bound }

// nextID reads one more response, for at most pause, and returns the id of the peer's task in it,
// empty if it has none. The error is errIdle if no response arrives.
type nextID func(ctx context.Context, pause time.Duration) (string, error)

// streamedID returns a nextID that reads a stream.
func streamedID(src *events) nextID {
	return func(ctx context.Context, pause time.Duration) (string, error) {
		resp, err := src.next(ctx, pause)
		return resp.GetTaskId(), err
	}
}

// cancelPeer asks the peer to cancel the task until the task has ended or ctx ends. It names the
// task by its id or, while that is not known, by the key of the call.
func (p *process) cancelPeer(ctx context.Context, next nextID) withdrawn {
	for {
		req := &teamv1.CancelRequest{AgentId: p.agent.cfg.AgentID, TaskId: p.bound.GetTaskId()}
		if p.bound == nil {
			req.Key = p.key
		}
		resp, err := p.agent.client.Cancel(p.agent.outgoing(ctx, p.req.GetDepth()), req)
		switch code := codeOf(err); {
		case taskstate.Final(resp.GetState()):
			p.learn(ctx, next)
			return withdrawn{confirmed: true, result: resp.GetState() == a2av1.TaskState_TASK_STATE_COMPLETED, spent: claimed(resp.GetSpent())}
		case code == codes.FailedPrecondition:
			return withdrawn{confirmed: true, result: true}
		case code == codes.NotFound && p.bound != nil: // the peer no longer has the task
			return withdrawn{confirmed: true}
		case code == codes.NotFound && next == nil:
			return withdrawn{none: true}
		case err != nil && code != codes.Unavailable && code != codes.NotFound:
			p.agent.cfg.Log.Warn("cannot cancel the task of a remote agent", zap.String("agent", p.agent.cfg.ID), zap.Error(err))
			if !p.late {
				p.learn(ctx, next)
			}
			return withdrawn{}
		case p.late:
			return withdrawn{}
		}
		if p.bound != nil || next == nil {
			if agent.Sleep(ctx, p.agent.cfg.CancelEvery) != nil {
				return withdrawn{}
			}
		} else if next = p.learn(ctx, next); ctx.Err() != nil {
			return withdrawn{}
		}
	}
}

// learn reads responses until the task's id is known, none arrives for CancelEvery, or ctx ends. It
// returns nil when no further response will arrive, and next otherwise.
func (p *process) learn(ctx context.Context, next nextID) nextID {
	for p.bound == nil && next != nil {
		id, err := next(ctx, p.agent.cfg.CancelEvery)
		if id != "" {
			p.bound, p.state = &teamv1.Bound{Peer: p.peer(), TaskId: id}, a2av1.TaskState_TASK_STATE_WORKING
		}
		switch {
		case errors.Is(err, errIdle), ctx.Err() != nil:
			return next
		case err != nil:
			return nil
		}
	}
	return next
}

// ended handles the end of the call's context and returns the error of the call. src is the stream
// in progress, nil if there is none.
func (x *exchange) ended(src *updates) error {
	return x.end(x.agent.cfg.ID, x.agent.cfg.CancelWait, x.task, func(ctx context.Context) withdrawn {
		if x.bound == nil && (src == nil || !x.await(ctx, src)) {
			return withdrawn{none: x.nothing}
		}
		return x.cancelPeer(ctx)
	})
}

// await reads the stream until the task to cancel is known, and reports whether it is. There is no
// task if the peer answers with a message or an error.
func (x *exchange) await(ctx context.Context, src *updates) bool {
	for {
		r, err := src.next(ctx, 0)
		if err != nil {
			x.nothing = x.nothing || codeOf(err) != codes.OK && agent.AsError(failure(x.agent.cfg.ID, err)).Fresh
			return false
		}
		id, contextID := taskOf(r)
		if id != "" {
			x.bound = &teamv1.Bound{Peer: x.peer(), TaskId: id, ContextId: contextID}
			x.hear(r)
			return true
		}
		x.nothing = x.nothing || r.GetMessage() != nil
		if ctx.Err() != nil {
			return false
		}
	}
}

// cancelPeer cancels the peer's task and polls it until it has ended or ctx ends.
func (x *exchange) cancelPeer(ctx context.Context) withdrawn {
	accepted := false
	for every := x.agent.cfg.PollEvery; ; every = min(2*every, x.agent.cfg.PollMost) {
		t, err := x.press(ctx, accepted)
		switch code := codeOf(err); {
		case x.link == nil && agent.AsError(err).Retry && !x.late: // the peer may be available again in time
		case x.link == nil, code == codes.Unimplemented, code == codes.PermissionDenied, code == codes.Unauthenticated:
			x.agent.cfg.Log.Warn("cannot cancel the task of a remote agent", zap.String("agent", x.agent.cfg.ID), zap.Error(err))
			return withdrawn{}
		case taskstate.Final(t.GetStatus().GetState()), code == codes.NotFound:
			run := teamRunOf(t.GetMetadata())
			return withdrawn{
				confirmed: true, result: t.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED,
				spent: claimed(run.GetSpent()), after: run.GetReceipt().GetSpentAfter(),
			}
		case code == codes.FailedPrecondition && !accepted: // the task may have ended already
			accepted = true
			continue
		case x.late:
			return withdrawn{}
		case err == nil:
			accepted = true
		}
		if agent.Sleep(ctx, every) != nil {
			return withdrawn{}
		}
	}
}

// press asks the peer to cancel the task, or reads the task if the peer has accepted that already.
func (x *exchange) press(ctx context.Context, accepted bool) (*a2av1.Task, error) {
	if x.link == nil {
		l, err := x.agent.connect(ctx)
		if err != nil {
			return nil, err
		}
		x.link = l
	}
	if accepted {
		return x.look(ctx, 0)
	}
	return x.link.client.CancelTask(x.calling(ctx), &a2av1.CancelTaskRequest{Id: x.bound.GetTaskId()})
}
