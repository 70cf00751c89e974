package a2a

import (
	"context"
	"errors"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// SendMessage sends a message to an agent; see A2A 1.0, section 3.1.1. It waits until the task
// has ended or waits for input or authentication, unless return_immediately is set. The task
// continues if the client disconnects. If the agent may reply directly, the response may be a
// message instead of a task.
//
// Errors: INVALID_REQUEST, AGENT_NOT_FOUND, TASK_NOT_FOUND, UNSUPPORTED_OPERATION if the task has
// ended, MESSAGE_ID_REUSED, QUESTION_ANSWERED for a second answer to a question,
// PERMISSION_DENIED for the answer to a question that is addressed to roles the caller does not
// have, HALTED if the agent, the account or the server is halted, and WAIT_TIMEOUT if the deadline of ctx passes before.
func (h *Handler) SendMessage(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	conf := req.GetConfiguration()
	s, err := h.inbox.accept(ctx, req, !conf.GetReturnImmediately())
	if err != nil {
		return nil, err
	}
	if conf.GetReturnImmediately() {
		t, _, err := h.tasks.task(ctx, "", s.key)
		if s.existed && a2aerror.IsNotFound(err) {
			return h.tasks.folded(ctx, s.key, conf)
		}
		return taskResponse(t, conf), err
	}
	var resp *a2av1.SendMessageResponse
	err = h.tasks.follow(ctx, s, func(direct bool) (over bool, err error) {
		if direct {
			resp, err = h.tasks.folded(ctx, s.key, conf)
			return true, err
		}
		t, _, err := h.tasks.task(ctx, "", s.key)
		resp = taskResponse(t, conf)
		return settled(t.GetStatus().GetState()), err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// folded returns the response of a run that callers may not see as a task, from its events: the message with which it
// was answered or, before that, the task.
func (t tasks) folded(ctx context.Context, k runs.Key, conf *a2av1.SendMessageConfiguration) (*a2av1.SendMessageResponse, error) {
	root, scope := agent.SplitTask(k.ID)
	f, err := t.fold(ctx, runs.Key{Owner: k.Owner, ID: root}, scope)
	if err != nil {
		return nil, err
	}
	if f.Ended().GetDirect() && !f.Visible() {
		return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Message{Message: f.Direct()}}, nil
	}
	return taskResponse(f.Snapshot(details(ctx)), conf), nil
}

// settled reports whether a task in a state has ended, or waits for input or authentication.
func settled(state a2av1.TaskState) bool {
	return taskstate.Final(state) || taskstate.Interrupted(state)
}

// taskResponse returns the response with a task, nil without one.
func taskResponse(t *a2av1.Task, conf *a2av1.SendMessageConfiguration) *a2av1.SendMessageResponse {
	if t == nil {
		return nil
	}
	return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Task{Task: project.CutHistory(t, historyOf(conf))}}
}

// historyOf returns the history length that the client asked for, or nil if it did not.
func historyOf(conf *a2av1.SendMessageConfiguration) *int32 {
	if conf == nil {
		return nil
	}
	return conf.HistoryLength
}

// accept validates a message and records it. If the sender waits, the caller must call follow.
func (b *inbox) accept(ctx context.Context, req *a2av1.SendMessageRequest, waits bool) (sent, error) {
	who, s, err := b.checked(ctx, req)
	if err != nil {
		return sent{}, err
	}
	s.waits = waits
	return b.put(ctx, who, s)
}

// checked validates a message and returns it together with its sender.
func (b *inbox) checked(ctx context.Context, req *a2av1.SendMessageRequest) (identity.Caller, *send, error) {
	var c checker
	c.send(req)
	now := b.Settings.Load()
	push, supported := req.GetConfiguration().GetTaskPushNotificationConfig(), b.hooks.on()
	if push != nil && supported {
		c.inlinePush(req, push, now.CheckWebhook)
	}
	if err := c.Err(); err != nil {
		return identity.Caller{}, nil, err
	}
	if push != nil && !supported {
		return identity.Caller{}, nil, a2aerror.PushNotificationNotSupported()
	}
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return who, nil, err
	}
	run := RunOf(req.GetMetadata())
	if run == nil {
		run = RunOf(req.GetMessage().GetMetadata())
	}
	s := &send{
		tenant: req.GetTenant(), message: req.GetMessage(), metadata: req.GetMetadata(), key: req.GetMessage().GetMessageId(),
		question: run.GetQuestion(), push: push,
		accepted: &teamv1.Accepted{
			Metadata: req.GetMetadata(), Extensions: ExtensionsOf(ctx), Trace: traceOf(ctx), AcceptedOutputModes: req.GetConfiguration().GetAcceptedOutputModes(),
			Depth: max(run.GetDepth(), int32(min(agent.Depth(ctx), 1<<20))), Deadline: run.GetDeadline(), Limits: run.GetEnvelope(), //nolint:gosec // bounded
			Transfers: transfersOf(req.GetMessage()),
		},
	}
	if b.forgets() {
		s.key = ""
	}
	if run.GetDelegationId() != "" && s.question == "" {
		s.question = run.GetDelegationId()
	}
	script := transcriptOf(ctx)
	if script != nil {
		s.accepted.History = script.Earlier
	}
	s.accepted.MayReplyDirectly = !req.GetConfiguration().GetReturnImmediately() && push == nil && script == nil
	return who, s, nil
}

// forgets reports whether each message is new, even if one with the same id was sent before. Otherwise a repeated message
// gets the answer of the first one. The keys of the Agent service are remembered in either case.
func (b *inbox) forgets() bool { return b.Settings.Load().GetDeduplicate() == "off" }

// progress is how far a task has dealt with a message, from the events of its root.
type progress struct {
	scope   string // of the task
	inbound int64  // number of the input that has not been recorded as received, or 0
	hidden  bool   // the run may still be answered by a plain message, or was
	ended   bool
	asked   bool // the task has waited for input or authentication, and may do so still
}

// take applies an event and reports whether a blocking SendMessage may return after it: the task has ended, or has
// waited for input or authentication when it had received the message, and may do so still. See A2A 1.0, section 3.2.2.
func (p *progress) take(ev feed.Event) bool {
	if p.inbound != 0 && p.inbound == project.Consumed(ev.Event) {
		p.inbound = 0
	}
	own := ev.GetScope() == p.scope
	p.ended = p.ended || ev.GetEnded() != nil && agent.Within(p.scope, ev.GetScope())
	p.asked = p.asked || own && ev.GetWaiting() != nil
	if acc := ev.GetAccepted(); own && acc != nil {
		p.hidden = acc.GetMayReplyDirectly()
	} else if p.hidden {
		p.hidden = !project.Reveals(ev.Event)
	}
	return p.ended || p.asked && ev.Last && p.inbound == 0
}

// follow waits until the task has dealt with a message. When it may have, follow calls over, which reports whether it
// has; direct says that the run was answered by a plain message.
func (t tasks) follow(ctx context.Context, s sent, over func(direct bool) (bool, error)) error {
	root, scope := agent.SplitTask(s.key.ID)
	p := &progress{scope: scope, inbound: s.inbound}
	tail := s.tail
	if tail == nil {
		tail = t.feeds.Tail(s.key.Owner, root, 0)
	}
	defer tail.Close()
	for ev, err := range tail.Events(ctx) {
		done := false
		if err == nil && p.take(ev) {
			done, err = over(p.hidden && p.ended)
		}
		switch {
		case err != nil && p.hidden:
			return unansweredError(err)
		case err != nil:
			return waitError(s.key.ID, goesOn, err)
		case done:
			return nil
		}
	}
	return nil
}

// goesOn is the text for waitError if the task continues after the wait.
const goesOn = "is still running"

// waitError returns the error of a wait that ended before the task. If the deadline of the call
// has passed, it is WAIT_TIMEOUT, and becomes says what happens to the task; other errors are
// returned unchanged.
func waitError(id, becomes string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonWaitTimeout,
			"task %q %s; get it or subscribe to it", id, becomes).With("task_id", id)
	}
	return err
}

// unansweredError is like waitError for a message that may still be answered with a message: there is no task to get.
func unansweredError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonWaitTimeout,
			"the agent is still working on the message, and may answer it without a task; send it again with the same messageId to wait for the answer, unless the server has deduplicate: off, or send with returnImmediately for a task that can be read later")
	}
	return err
}
