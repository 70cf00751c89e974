package remote

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// lateWait bounds what is done at the peer for a call whose time ran out. Nobody
// waits for the outcome.
const lateWait = time.Second

// withdrawn is what became of a peer's task that was to end.
type withdrawn struct {
	none         bool // there is none
	confirmed    bool
	spent, after *teamv1.Spent // in all, and after the cancel; nil is not known
}

// over reports whether the end of ctx is still to be made known to the peer:
// not after a reply, a break, or when somebody else continues.
func (c *call) over(err error) bool {
	return c.ctx.Err() != nil && !c.settled && !c.replied && !errors.Is(err, errLeft)
}

// end ends the call with its context. A cancel goes on to the peer and waits for
// it, up to wait; a call that has no time left only says so.
func (c *call) end(id string, wait time.Duration, task func() string, stop func(ctx context.Context) withdrawn) error {
	c.settled = true
	cause := context.Cause(c.ctx)
	c.late = outOfTime(cause)
	if !c.late && !errors.Is(cause, agent.ErrCanceled) || !c.sent && task() == "" { // or nothing was sent
		return cause
	}
	if c.late {
		wait = min(wait, lateWait)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), wait)
	defer cancel()
	w := stop(ctx)
	if c.late {
		return cause
	}
	return c.canceled(id, task(), w)
}

// outOfTime reports whether a call ended for a limit: nobody continues it.
func outOfTime(cause error) bool {
	reason := agent.AsError(cause).Reason
	return reason == agent.ReasonTimeout || reason == agent.ReasonJournalLimit
}

// canceled is the error of a canceled call, with the receipt for the peer's task.
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

// Reap implements agent.Reaper: the task that was begun with the call's key ends.
func (a *Agent) Reap(ctx context.Context, req *teamv1.ProcessRequest) error {
	p := newProcess(a, newCall(ended(ctx), req, nil))
	p.sent = true
	return p.ended(nil)
}

// Reap implements agent.Reaper. A task whose id is not known cannot be ended: it
// is told that there may be one.
func (a *A2A) Reap(ctx context.Context, req *teamv1.ProcessRequest) error {
	c := newCall(ended(ctx), req, nil)
	return c.canceled(a.cfg.ID, "", withdrawn{})
}

// ended is ctx with its end.
func ended(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(agent.ErrCanceled)
	return ctx
}

// ended ends the call with its context: the peer's task too.
func (p *process) ended(next nextID) error {
	return p.end(p.agent.cfg.ID, p.agent.cfg.CancelWait, p.task, func(ctx context.Context) withdrawn {
		return p.cancelPeer(ctx, next)
	})
}

// task is the id of the peer's task; empty while it is not known.
func (p *process) task() string { return p.bound.GetTaskId() }

func (x *exchange) task() string { return x.bound.GetTaskId() }

// nextID reads on for at most a pause and returns the id of the peer's task, ""
// when there was none in what came. errIdle: nothing came.
type nextID func(ctx context.Context, pause time.Duration) (string, error)

func streamedID(src *events) nextID {
	return func(ctx context.Context, pause time.Duration) (string, error) {
		resp, err := src.next(ctx, pause)
		return resp.GetTaskId(), err
	}
}

// cancelPeer asks the peer to end the task, until it has: by its id or, as long
// as that is not known, by the key.
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
			return withdrawn{confirmed: true, spent: resp.GetSpent()}
		case code == codes.FailedPrecondition:
			return withdrawn{confirmed: true}
		case code == codes.NotFound && p.bound != nil: // it is lost
			return withdrawn{confirmed: true}
		case code == codes.NotFound && next == nil:
			return withdrawn{none: true}
		case err != nil && code != codes.Unavailable && code != codes.NotFound:
			p.agent.cfg.Log.Warn("remote agent does not cancel", zap.String("agent", p.agent.cfg.ID), zap.Error(err))
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

// learn reads on until the task's id is known, nothing came for a pause, or the
// call is over: then it returns nil, since nothing more will come.
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

// ended ends the call with its context: the peer's task too.
func (x *exchange) ended(src *updates) error {
	return x.end(x.agent.cfg.ID, x.agent.cfg.CancelWait, x.task, func(ctx context.Context) withdrawn {
		if x.bound == nil && (src == nil || !x.await(ctx, src)) {
			return withdrawn{none: x.nothing}
		}
		return x.cancelPeer(ctx)
	})
}

// await reads until the task is known that is to be canceled. There is none when
// the peer answers without one, or refuses.
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

// cancelPeer ends the peer's task and reads how it ended.
func (x *exchange) cancelPeer(ctx context.Context) withdrawn {
	accepted := false
	for every := x.agent.cfg.PollEvery; ; every = min(2*every, x.agent.cfg.PollMost) {
		t, err := x.press(ctx, accepted)
		switch code := codeOf(err); {
		case x.link == nil && agent.AsError(err).Retry && !x.late: // it may be up again in time
		case x.link == nil, code == codes.Unimplemented, code == codes.PermissionDenied, code == codes.Unauthenticated:
			x.agent.cfg.Log.Warn("remote agent does not cancel", zap.String("agent", x.agent.cfg.ID), zap.Error(err))
			return withdrawn{}
		case taskstate.Final(t.GetStatus().GetState()), code == codes.NotFound:
			run := teamRunOf(t.GetMetadata())
			return withdrawn{confirmed: true, spent: run.GetSpent(), after: run.GetReceipt().GetSpentAfter()}
		case code == codes.FailedPrecondition && !accepted: // it may have ended before
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

// press asks the peer to end the task, or where it has accepted that how it stands.
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
