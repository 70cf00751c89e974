package remote

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
)

// updates is the stream of a peer's responses about a task.
type updates = source[*a2av1.StreamResponse]

// exchange is one call of an A2A agent.
type exchange struct {
	*call
	agent    *A2A
	link     *link
	bound    *teamv1.Bound // nil until the peer's task is known
	resumed  bool          // the task was known before this call, so its text is sent again
	answered bool          // this call has sent an answer and received no response yet
	nothing  bool          // the peer has answered without a task
	tasked   bool          // this call has received the task
	// said holds messages that arrived outside of the task.
	said     []*a2av1.Message
	saidSize int // bytes in said
	output   artifacts
	latest   *a2av1.Message // the latest message in a status; nil without one
	gap      bool           // what is known comes from the task, and updates before it may be missing
}

// newExchange returns the exchange for a call.
func newExchange(a *A2A, c *call) *exchange {
	return &exchange{call: c, agent: a, bound: c.past.bound, resumed: c.past.bound != nil}
}

// work makes the call. The error is the one for our caller.
func (x *exchange) work() error {
	ctx := agent.WithDepth(x.ctx, depthOf(x.ctx, x.req.GetDepth()))
	if x.ctx.Err() != nil {
		return x.ended(nil)
	}
	if err := x.inTime(); err != nil && x.bound == nil {
		return err
	}
	if err := agent.Commit(x.ctx); err != nil {
		return err
	}
	var err error
	if x.link, err = x.agent.connect(ctx); err != nil {
		return x.interrupted(err)
	}
	err = x.begin()
	if isLost(err) && x.bound != nil {
		return lost(x.agent.cfg.ID, err)
	}
	return failure(x.agent.cfg.ID, err)
}

// begin sends the message or the answer, unless that was sent before, and follows the task.
func (x *exchange) begin() error {
	question, answer := x.pending()
	switch {
	case x.bound == nil:
		return x.converse(x.first())
	case answer != nil:
		return x.carryOn(question, answer)
	}
	return x.reattach()
}

// pending returns the latest question and its answer, nil without one.
func (x *exchange) pending() (*teamv1.Asked, *teamv1.Answered) {
	if len(x.past.asked) == 0 {
		return nil, nil
	}
	q := x.past.asked[len(x.past.asked)-1]
	return q, x.past.answered[q.GetQuestion()]
}

// carryOn sends the answer to the peer's question, unless the peer has received it already.
func (x *exchange) carryOn(question *teamv1.Asked, answer *teamv1.Answered) error {
	t, err := x.link.client.GetTask(x.calling(x.ctx), &a2av1.GetTaskRequest{Id: x.bound.GetTaskId()})
	if err != nil {
		return x.interrupted(err)
	}
	key := x.answerKey(answer.GetQuestion())
	if taskstate.Interrupted(t.GetStatus().GetState()) && !knows(t, key, question) {
		x.answered = true
		err := x.converse(x.answer(key, question, answer))
		if !x.tasked && (codeOf(err) == codes.InvalidArgument || codeOf(err) == codes.PermissionDenied && reasonOf(err) == agent.ReasonPermissionDenied) {
			return x.askAgain(t, err)
		}
		return err
	}
	x.gap = x.link.streaming
	done, err := x.take(&a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: t}})
	if done || err != nil {
		return err
	}
	return x.reattach()
}

// askAgain yields the question of a waiting task again, after the peer has rejected the answer with
// err.
func (x *exchange) askAgain(t *a2av1.Task, err error) error {
	s := proto.CloneOf(t.GetStatus())
	why := "The answer was not accepted: " + agent.AsError(failure(x.agent.cfg.ID, err)).Message
	if codeOf(err) == codes.PermissionDenied {
		why = "The answer was not accepted: the key of this server at agent " + strconv.Quote(x.agent.cfg.ID) + " has no role that may answer."
	}
	if s.GetMessage() == nil {
		s.Message = &a2av1.Message{Role: a2av1.Role_ROLE_AGENT}
	}
	s.Message.Parts = slices.Concat(agent.TextParts(why), s.GetMessage().GetParts())
	_, err = x.status(s, t.GetMetadata())
	return err
}

// knows reports whether a waiting task does not need the answer with a key, because it has received
// that or asks another question.
func knows(t *a2av1.Task, key string, question *teamv1.Asked) bool {
	if slices.ContainsFunc(t.GetHistory(), func(m *a2av1.Message) bool { return m.GetMessageId() == key }) {
		return true
	}
	asks := t.GetStatus().GetMessage().GetMessageId()
	return asks != "" && asks != question.GetMessage().GetMessageId()
}

// first returns the request with the message for the peer. The key of the call is the message id.
// A2A has neither a history of other agents nor a brief, so these become parts before those of the
// message.
func (x *exchange) first() *a2av1.SendMessageRequest {
	m := foreign(x.req.GetMessage(), x.key)
	m.Parts = slices.Concat(before(x.req.GetHistory()), shared(x.req.GetBrief()), m.GetParts())
	if x.link.routing && len(x.req.GetTransfers()) > 0 {
		addRouting(m, x.req.GetTransfers())
	}
	return x.request(m, "")
}

// shared returns the text of a collaboration's brief, nil without one.
func shared(b *teamv1.Brief) []*a2av1.Part {
	if b == nil {
		return nil
	}
	return agent.TextParts(agent.BriefText(b))
}

// before returns earlier messages as one text part, nil without any. A2A has no history other than
// the peer's own.
func before(history []*a2av1.Message) []*a2av1.Part {
	if len(history) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("What was said before:")
	for _, m := range history {
		who := "user"
		if m.GetRole() == a2av1.Role_ROLE_AGENT {
			who = "agent"
		}
		b.WriteString("\n\n" + who + ": " + agent.Text(m))
	}
	return agent.TextParts(b.String())
}

// answer returns the request with the answer a to the peer's question q.
func (x *exchange) answer(key string, q *teamv1.Asked, a *teamv1.Answered) *a2av1.SendMessageRequest {
	m := foreign(a.GetMessage(), key)
	m.Parts = asData(q.GetMessage().GetParts(), m.GetParts())
	m.TaskId, m.ContextId = x.bound.GetTaskId(), x.bound.GetContextId()
	_, theirs, _ := strings.Cut(a.GetQuestion(), ofPeer)
	return x.request(m, theirs)
}

// request returns the request that sends a message, with the limits of the call. question is the peer's
// id of the question that the message answers; empty if there is none, or it is not known.
func (x *exchange) request(m *a2av1.Message, question string) *a2av1.SendMessageRequest {
	run := &teamv1.TeamRun{
		Question: question,
		Depth:    int32(depthOf(x.ctx, x.req.GetDepth())), //nolint:gosec // bounded by MaxDepth
		Deadline: deadlineOf(x.ctx, x.req, x.run.Now()), Envelope: x.req.GetEnvelope(),
	}
	return &a2av1.SendMessageRequest{
		Message: m, Metadata: teamRunMetadata(run),
		Configuration: &a2av1.SendMessageConfiguration{HistoryLength: proto.Int32(0), ReturnImmediately: !x.link.streaming},
	}
}

// converse sends a message and follows its task. If the server rejects streams,
// whatever its card says, converse sends the message without one.
func (x *exchange) converse(req *a2av1.SendMessageRequest) error {
	err := x.sendAndFollow(req)
	if !x.link.streaming || x.tasked || len(x.said) > 0 || !x.refusesStreams(err) {
		return err
	}
	polled := *x.link
	polled.streaming = false
	x.link = &polled
	req.Configuration.ReturnImmediately = true
	return x.sendAndFollow(req)
}

// refusesStreams reports whether an error means that the server has no streams: it
// rejects the operation or does not know it. In that case it has not accepted the
// message.
func (x *exchange) refusesStreams(err error) bool {
	switch code := codeOf(err); {
	case reasonOf(err) == a2aUnsupported, code == codes.Unimplemented:
		return true
	case code == codes.NotFound && x.bound == nil: // REST: the path is unknown
		return reasonOf(err) == ""
	}
	return false
}

// a2aUnsupported is A2A's reason for an operation that the server does not offer.
const a2aUnsupported = "UNSUPPORTED_OPERATION"

// sendAndFollow sends a message, as a stream if the link streams, and follows its task.
func (x *exchange) sendAndFollow(req *a2av1.SendMessageRequest) error {
	open := once(func(ctx context.Context) (*a2av1.StreamResponse, error) {
		resp, err := x.link.client.SendMessage(x.calling(ctx), req)
		return streamed(resp), err
	})
	if x.link.streaming {
		open = func(ctx context.Context) iter.Seq2[*a2av1.StreamResponse, error] {
			return x.link.client.StreamMessage(x.calling(ctx), req)
		}
	}
	if x.ctx.Err() != nil {
		return x.ended(nil)
	}
	x.sent = true
	src := read(x.ctx, open)
	defer src.close()
	return x.follow(src)
}

// calling returns a context with the headers of a call to the peer.
func (x *exchange) calling(ctx context.Context) context.Context {
	ctx = withPath(ctx, depthOf(x.ctx, x.req.GetDepth()))
	return a2aclient.WithExtensions(ctx, x.link.extensions(len(x.req.GetTransfers()) > 0)...)
}

// streamed returns the response of a unary call as the first response of a stream.
func streamed(resp *a2av1.SendMessageResponse) *a2av1.StreamResponse {
	if m := resp.GetMessage(); m != nil {
		return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Message{Message: m}}
	}
	return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: resp.GetTask()}}
}

// reattach follows the recorded task. If the peer refuses the subscription, for example because the
// task has ended, reattach polls the task.
func (x *exchange) reattach() error {
	if !x.link.streaming {
		return x.poll(0)
	}
	src := read(x.ctx, func(ctx context.Context) iter.Seq2[*a2av1.StreamResponse, error] {
		return x.link.client.SubscribeToTask(x.calling(ctx), &a2av1.SubscribeToTaskRequest{Id: x.bound.GetTaskId()}, 0)
	})
	defer src.close()
	err := x.follow(src)
	switch codeOf(err) {
	case codes.FailedPrecondition, codes.Unimplemented, codes.InvalidArgument:
		return x.poll(0)
	}
	return err
}

// follow reads until the result or a question. It polls the task while a stream is
// silent, and after a stream that ends early or breaks.
func (x *exchange) follow(src *updates) error {
	for {
		idle := x.agent.cfg.Idle
		if x.bound == nil && len(x.said) == 0 {
			idle = 0 // a timeout would only send the message again
		}
		r, err := src.next(x.ctx, idle)
		switch {
		case x.ctx.Err() != nil:
			src.unread()
			return x.ended(src)
		case (errors.Is(err, io.EOF) || errors.Is(err, errIdle)) && !x.tasked && len(x.said) > 0:
			return x.direct()
		case errors.Is(err, io.EOF) && x.bound == nil:
			return broken(x.agent.cfg.ID)
		case errors.Is(err, io.EOF):
			return x.poll(1)
		case err != nil && !errors.Is(err, errIdle) && x.bound != nil && unfinished(x.agent.cfg.ID, err):
			return x.poll(0)
		case errors.Is(err, errIdle):
			x.gap = true
			if r, err = x.glance(0); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			x.heard()
			x.gap = x.resumed && r.GetTask() != nil
		}
		done, err := x.take(r)
		if done || err != nil {
			return err
		}
	}
}

// poll reads the task repeatedly until it ends or asks a question. If round is 0, it reads the task
// at once, otherwise after a pause.
func (x *exchange) poll(round int) error {
	x.gap = x.gap || x.link.streaming
	every := x.agent.cfg.PollEvery
	for ; ; round++ {
		if round > 0 {
			_ = agent.Sleep(x.ctx, every) // the end of ctx is handled below
			every = min(2*every, x.agent.cfg.PollMost)
		}
		if x.ctx.Err() != nil {
			return x.ended(nil)
		}
		r, err := x.glance(0)
		if err != nil {
			return err
		}
		done, err := x.take(r)
		if done || err != nil {
			return err
		}
	}
}

// looks is how often a peer is polled for its task before it counts as unreachable.
const looks = 3

// glance gets the task, with the end of its history, as a response of a stream. Getting
// a task changes nothing at the peer, so glance retries if the connection breaks.
func (x *exchange) glance(history int32) (*a2av1.StreamResponse, error) {
	every := x.agent.cfg.PollEvery
	for n := 1; ; n++ {
		t, err := x.look(x.ctx, history)
		switch {
		case err == nil:
			x.read(t)
			return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: t}}, nil
		case x.ctx.Err() != nil, n == looks, !unfinished(x.agent.cfg.ID, err):
			return nil, x.interrupted(err)
		}
		_ = agent.Sleep(x.ctx, every) // if ctx has ended, the next call to look fails
		every = min(2*every, x.agent.cfg.PollMost)
	}
}

// look reads the task, with the given number of history messages.
func (x *exchange) look(ctx context.Context, history int32) (*a2av1.Task, error) {
	return x.link.client.GetTask(x.calling(ctx), &a2av1.GetTaskRequest{
		Id: x.bound.GetTaskId(), HistoryLength: proto.Int32(history),
	})
}

// interrupted returns the error of reading the task, or that of the call if its context has ended.
func (x *exchange) interrupted(err error) error {
	if x.ctx.Err() != nil {
		return x.ended(nil)
	}
	return err
}

// peer returns the URL of the peer's card.
func (x *exchange) peer() string { return x.agent.peer.card.String() }

// taskOf returns the ids of the task and the context that a response belongs to.
func taskOf(r *a2av1.StreamResponse) (id, contextID string) {
	switch k := r.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		return k.Task.GetId(), k.Task.GetContextId()
	case *a2av1.StreamResponse_StatusUpdate:
		return k.StatusUpdate.GetTaskId(), k.StatusUpdate.GetContextId()
	case *a2av1.StreamResponse_ArtifactUpdate:
		return k.ArtifactUpdate.GetTaskId(), k.ArtifactUpdate.GetContextId()
	}
	return "", ""
}

// questionID returns the id of the n-th question of a call.
func questionID(n int) string { return "question-" + strconv.Itoa(n) }
