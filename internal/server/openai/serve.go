package openai

import (
	"context"
	"net/http"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/wire"
)

// answer answers a request of any API that asks an agent: it finds where the message goes, sends it there, and gives what the
// task says.
func (d *Door) answer(w http.ResponseWriter, r *http.Request, of *ask, body []byte, formOf func(place) form) {
	r = r.WithContext(call.Translated(r.Context()))
	t, err := d.turnOf(r.Context(), r.Header, of, body)
	if err != nil {
		fail(w, err)
		return
	}
	at, err := d.place(r.Context(), t)
	if err != nil {
		fail(w, err)
		return
	}
	waits := d.open.enter(at.message)
	give := d.whole
	if of.Stream {
		give = d.stream
	}
	answered := give(w, r, t, at, formOf(at))
	d.open.leave(at.message, waits, answered && r.Context().Err() == nil)
	if r.Context().Err() != nil && !answered && !t.background && d.config.Settings.GetCancelOnDisconnect() && !d.open.waits(at.message) {
		d.cancel(context.WithoutCancel(r.Context()), t, at)
	}
}

// whole gives the answer in one piece, when its task has ended or asks; in the background, as it is. It reports whether the
// caller has got it.
func (d *Door) whole(w http.ResponseWriter, r *http.Request, t *turn, at place, f form) bool {
	out := &patient{w: w}
	out.start(out.blank)
	a, err := d.send(r.Context(), t, at)
	if err == nil && !t.background {
		err = a.failed().Err()
	}
	out.stop()
	switch {
	case err != nil && out.begun:
		call.LimitWrite(w)
		_, _ = w.Write(encode(f.broken(a, wire.Status(err)))) //nolint:gosec // JSON, with its media type; the caller may have disconnected
	case err != nil:
		fail(w, err)
	default:
		reply(w, f.whole(a))
	}
	return err == nil
}

// send sends the message of a turn and returns what the task has said to it.
func (d *Door) send(ctx context.Context, t *turn, at place) (*answer, error) {
	resp, err := d.tasks.SendMessage(t.send(ctx, at))
	if err != nil {
		return nil, err
	}
	return d.said(ctx, resp.GetTask(), at)
}

// stream gives the answer as a stream. It reports whether the caller has got all of it.
func (d *Door) stream(w http.ResponseWriter, r *http.Request, t *turn, at place, f form) bool {
	to := d.follow(r.Context(), at)
	to.to = &events{form: f, early: t.background}
	to.ctx, to.req = t.send(to.ctx, at)
	return d.relay(w, a2av1.A2AService_SendStreamingMessage_FullMethodName, to)
}

// follow returns what follows a task from the message at a place on.
func (d *Door) follow(ctx context.Context, at place) *follow {
	f := &follow{ctx: ctx, after: at.after, answer: answer{base: call.InboundOf(ctx).BaseURL()}}
	if at.after > 0 { // a new task is followed from its beginning anyway
		f.ctx = call.Resumed(ctx, everything)
	}
	return f
}

// said returns what a task has said to the message at a place so far.
func (d *Door) said(ctx context.Context, task *a2av1.Task, at place) (*answer, error) {
	a := &answer{base: call.InboundOf(ctx).BaseURL()}
	state, later := task.GetStatus().GetState(), asked(task, at)
	switch {
	case at.after == 0 && !later:
		a.take(task)
		return a, nil
	case !later && !taskstate.Final(state) && (!taskstate.Interrupted(state) || indexOf(task, at.message) < 0):
		a.task, a.status = task.GetId(), &a2av1.TaskStatus{State: a2av1.TaskState_TASK_STATE_WORKING}
		return a, nil
	}
	f := d.follow(ctx, at)
	f.ctx, f.req = call.Resumed(ctx, everything), &a2av1.SubscribeToTaskRequest{Id: task.GetId()}
	err := d.table.Stream(a2av1.A2AService_SubscribeToTask_FullMethodName, f)
	if f.over {
		err = nil
	}
	return &f.answer, err
}

// cancel cancels the task of a message whose caller has disconnected.
func (d *Door) cancel(ctx context.Context, t *turn, at place) {
	ctx, cancel := context.WithTimeout(ctx, call.QuickTime)
	defer cancel()
	tasks, err := d.inContext(ctx, t, at.context)
	if err != nil {
		return
	}
	for _, task := range tasks {
		if indexOf(task, at.message) >= 0 {
			_, _ = d.tasks.CancelTask(ctx, &a2av1.CancelTaskRequest{Tenant: t.model, Id: task.GetId()}) // the caller has gone
		}
	}
}
