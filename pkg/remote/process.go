package remote

import (
	"context"
	"errors"
	"io"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// events is the stream of a peer's events for a task.
type events = source[*teamv1.ProcessStreamResponse]

// process is one call of an Agent.
type process struct {
	*call
	agent   *Agent
	bound   *teamv1.Bound      // nil while the peer's task is not known
	met     bool               // a response was received on the current task
	cursor  int64              // sequence number of the last event read
	skip    int                // pieces of artifacts that are recorded already
	since   int                // events forwarded since the cursor was recorded
	answers []*teamv1.Answered // answers to send
	newest  *teamv1.Answered   // the last answer sent
	replays replays

	asked   map[string]*teamv1.Asked // by the peer's id of the question
	replies map[int64]*a2av1.Message // messages of the peer, by its sequence numbers
	texts   map[string]bool          // artifacts with streamed text since a reattachment; nil without one
	turns   map[string]bool          // whether a step's text may be the peer's answer, by its id
}

// errOther means that the peer works on another task than the recorded one.
var errOther = errors.New("the peer has lost the task")

// newProcess returns the process for a call.
func newProcess(a *Agent, c *call) *process {
	p := &process{
		call: c, agent: a, answers: c.past.answers, newest: c.past.newest,
		asked: map[string]*teamv1.Asked{}, replies: map[int64]*a2av1.Message{},
	}
	if b := c.past.bound; b != nil {
		p.bound, p.cursor, p.skip, p.texts = proto.CloneOf(b), b.GetCursor(), c.past.artifacts, map[string]bool{}
	}
	return p
}

// work makes the call. The error is the one for our caller.
func (p *process) work() error {
	if p.ctx.Err() != nil {
		return p.ended(nil)
	}
	if err := p.inTime(); err != nil && p.bound == nil {
		return err
	}
	if err := agent.Commit(p.ctx); err != nil {
		return err
	}
	for {
		if p.ctx.Err() != nil {
			return p.ended(nil)
		}
		err := p.attend()
		switch {
		case errors.Is(err, errIdle):
			p.agent.cfg.Log.Debug("the stream of a remote agent is idle; reopening it", zap.String("agent", p.agent.cfg.ID))
		case errors.Is(err, errOther):
			p.forget()
		case codeOf(err) == codes.FailedPrecondition && p.newest != nil && !p.met:
			// The task accepts no more answers: read how it ended.
			p.newest, p.answers = nil, nil
		case codeOf(err) == codes.Unimplemented && !p.met:
			return p.unary()
		default:
			return p.failed(err)
		}
	}
}

// failed converts an error of the peer for our caller.
func (p *process) failed(err error) error {
	if p.past.silent && codeOf(err) == codes.Aborted && agent.AsError(failure(p.agent.cfg.ID, err)).Reason == agent.ReasonCanceled {
		return p.afterSilence(p.agent.cfg.ID, nil)
	}
	if isLost(err) && p.bound != nil {
		return lost(p.agent.cfg.ID, err)
	}
	return failure(p.agent.cfg.ID, err)
}

// forget starts over with the new task that the peer has begun for the same key.
func (p *process) forget() {
	p.bound, p.cursor, p.skip, p.answers, p.newest, p.met, p.past.silent = nil, 0, 0, nil, nil, false, false
}

// attend sends all answers but the last one, opens the stream with the last one and follows it.
func (p *process) attend() error {
	for len(p.answers) > 1 {
		if err := p.deliver(); err != nil {
			return err
		}
	}
	src := p.open()
	defer src.close()
	return p.follow(src)
}

// deliver sends the first of several answers. The answer has arrived when a response comes back.
func (p *process) deliver() error {
	src := p.open()
	defer src.close()
	_, err := src.next(p.ctx, p.agent.cfg.Idle)
	if p.ctx.Err() != nil {
		src.unread()
		return p.ended(streamedID(src))
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// open sends the next answer and returns the stream. If there is none, it repeats the last answer
// or the message itself. With the same key these reach the same task, and the stream does not end
// with a question that was answered before.
func (p *process) open() *events {
	if len(p.answers) > 0 {
		p.newest = p.answers[0]
		p.answers = p.answers[1:]
	}
	req := p.message()
	if p.newest != nil && p.bound != nil {
		req = p.answer(p.newest)
	}
	depth, after := req.GetDepth(), p.cursor
	p.sent = true
	p.replays.open()
	return read(p.ctx, received(func(ctx context.Context) (grpc.ServerStreamingClient[teamv1.ProcessStreamResponse], error) {
		return p.agent.client.ProcessStream(p.agent.outgoing(ctx, depth), &teamv1.ProcessStreamRequest{Request: req, After: after})
	}))
}

// message returns the request for the peer, without the recorded events.
func (p *process) message() *teamv1.ProcessRequest {
	return &teamv1.ProcessRequest{
		AgentId:   p.agent.cfg.AgentID,
		Message:   foreign(p.req.GetMessage(), p.key),
		ContextId: agent.From(p.ctx).ConversationID(p.req),
		Key:       p.key,
		TaskId:    p.req.GetTaskId(),
		Question:  p.req.GetQuestion(),
		History:   foreignAll(p.req.GetHistory()),
		Branch:    p.req.GetBranch(),
		State:     p.req.GetState(),
		Brief:     p.req.GetBrief(),
		Transfers: p.req.GetTransfers(),
		Path:      p.req.GetPath(),
		Depth:     int32(depthOf(p.ctx, p.req.GetDepth())), //nolint:gosec // bounded by MaxDepth
		Envelope:  p.req.GetEnvelope(),
		Deadline:  deadlineOf(p.ctx, p.req, p.run.Now()),
	}
}

// answer returns the request that continues the peer's task with the answer to a question.
func (p *process) answer(a *teamv1.Answered) *teamv1.ProcessRequest {
	req := p.message()
	key := p.answerKey(a.GetQuestion())
	req.Key, req.Message = key, foreign(a.GetMessage(), key)
	req.TaskId, req.Question = p.bound.GetTaskId(), p.theirs(a.GetQuestion())
	req.History, req.State = nil, nil
	return req
}

// follow reads the stream until the result, a question, or the end of the stream.
func (p *process) follow(src *events) error {
	for {
		resp, err := src.next(p.ctx, p.agent.cfg.Idle)
		switch {
		case p.ctx.Err() != nil:
			src.unread()
			return p.ended(streamedID(src))
		case errors.Is(err, io.EOF):
			return broken(p.agent.cfg.ID)
		case err != nil:
			return err
		}
		done, err := p.take(resp)
		if done || err != nil {
			return err
		}
	}
}

// meet handles the task id of a response, and reports whether the response belongs to our task. The
// first one is recorded as the peer's task.
func (p *process) meet(task string) (ours bool, err error) {
	first := !p.met
	p.met = true
	p.state = a2av1.TaskState_TASK_STATE_WORKING
	switch {
	case p.bound == nil && task == "":
		return false, senseless(p.agent.cfg.ID, "returned no task id", nil)
	case p.bound == nil:
		p.bound = &teamv1.Bound{Peer: p.peer(), TaskId: task}
		return true, p.bind(proto.CloneOf(p.bound))
	case task == "" || task == p.bound.GetTaskId():
		return true, nil
	case first:
		return false, errOther
	}
	return false, nil
}

// mark records how far the peer's events have been read, so that recorded ones are not sent again.
// It does not wait until that is durable, because repeated events are skipped or merely shown
// twice.
func (p *process) mark() error {
	p.since = 0
	p.bound.Cursor = p.cursor
	return p.emit(&teamv1.Event{Kind: &teamv1.Event_Bound{Bound: proto.CloneOf(p.bound)}})
}

// markEvery is how many events are forwarded before the cursor is recorded again.
const markEvery = 32

// peer returns the name of the peer for Bound events.
func (p *process) peer() string {
	if p.agent.cfg.Address != "" {
		return p.agent.cfg.Address
	}
	return p.agent.cfg.ID
}
