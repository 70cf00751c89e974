package remote

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc/status"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// unary makes the call to a peer that does not implement ProcessStream. The id of its task becomes
// known only with its answer or its question.
func (p *process) unary() error {
	p.answers = p.past.answers
	for {
		resp, err := p.once()
		switch {
		case p.ctx.Err() != nil:
			return err
		case err == nil && len(p.answers) > 0: // there is another answer to send
		case err == nil:
			return p.unaryResult(resp)
		case reasonOf(err) == agent.ReasonWaitTimeout: // the task continues: the same key waits again
		case reasonOf(err) == agent.ReasonInputRequired && len(p.answers) == 0:
			return p.unaryPark(err)
		case reasonOf(err) == agent.ReasonInputRequired:
		default:
			return p.failed(err)
		}
	}
}

// once makes one unary call. If the context ends meanwhile, it cancels the peer's task by key.
func (p *process) once() (*teamv1.ProcessResponse, error) {
	req := p.message()
	if len(p.answers) > 0 {
		req = p.answer(p.answers[0])
		p.answers = p.answers[1:]
	}
	p.sent = true
	src := read(p.ctx, once(func(ctx context.Context) (*teamv1.ProcessResponse, error) {
		return p.agent.client.Process(p.agent.outgoing(ctx, req.GetDepth()), req)
	}))
	defer src.close()
	resp, err := src.next(p.ctx, 0)
	if p.ctx.Err() != nil {
		src.unread()
		return nil, p.ended(answeredID(src))
	}
	if errors.Is(err, io.EOF) {
		return nil, broken(p.agent.cfg.ID)
	}
	return resp, err
}

// answeredID returns a nextID that reads the response, which names the task.
func answeredID(src *source[*teamv1.ProcessResponse]) nextID {
	return func(ctx context.Context, pause time.Duration) (string, error) {
		resp, err := src.next(ctx, pause)
		if st, ok := status.FromError(err); ok && err != nil {
			return wire.InfoOf(st).GetMetadata()["task_id"], err
		}
		return resp.GetMessage().GetTaskId(), err
	}
}

// unaryResult yields our reply for a response.
func (p *process) unaryResult(resp *teamv1.ProcessResponse) error {
	r := &teamv1.Reply{Spent: claimed(resp.GetSpent())}
	switch {
	case resp.GetTransfer() != nil:
		r.Result = &teamv1.Reply_Transfer{Transfer: resp.GetTransfer()}
	case resp.GetMessage() != nil:
		r.Result = &teamv1.Reply_Message{Message: own(resp.GetMessage())}
	}
	return p.reply(r)
}

// unaryPark yields the question in the details of an error.
func (p *process) unaryPark(err error) error {
	st, _ := status.FromError(err)
	details := wire.InfoOf(st).GetMetadata()
	if _, err := p.meet(details["task_id"]); err != nil {
		return err
	}
	theirs := details["question"]
	if theirs == "" {
		theirs = unnamed + strconv.Itoa(len(p.past.asked)+1)
	}
	if p.past.wasAsked(p.question(theirs)) {
		return p.mark()
	}
	p.asked[theirs] = &teamv1.Asked{Question: theirs, Kind: teamv1.Asked_KIND_INPUT, Message: agent.NewMessage(clip(st.Message()))}
	if _, err := p.ask(theirs); err != nil {
		return err
	}
	return p.mark()
}
