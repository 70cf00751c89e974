package agent

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Text returns the text parts of a message, joined by newlines.
func Text(m *a2av1.Message) string {
	parts := m.GetParts()
	if len(parts) == 1 {
		return parts[0].GetText()
	}
	var texts []string
	for _, p := range parts {
		if t := p.GetText(); t != "" {
			texts = append(texts, t)
		}
	}
	return strings.Join(texts, "\n")
}

// NewMessage returns a message of an agent with one text part.
func NewMessage(text string) *a2av1.Message {
	return &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Parts: TextParts(text)}
}

// UserMessage returns a message of a user with one text part.
func UserMessage(id, text string) *a2av1.Message {
	return &a2av1.Message{MessageId: id, Role: a2av1.Role_ROLE_USER, Parts: TextParts(text)}
}

// TextParts returns one text part.
func TextParts(text string) []*a2av1.Part {
	return []*a2av1.Part{{Content: &a2av1.Part_Text{Text: text}}}
}

// ReplyEvent returns the last event of the sequence that answers req.
func ReplyEvent(req *teamv1.ProcessRequest, r *teamv1.Reply) *teamv1.Event {
	return &teamv1.Event{Scope: req.GetScope(), Agent: Path(req), Kind: &teamv1.Event_Reply{Reply: r}}
}

// Path returns the path of the agent that works on req, for Event.Agent.
func Path(req *teamv1.ProcessRequest) string {
	if len(req.GetPath()) == 0 {
		return req.GetAgentId()
	}
	return strings.Join(req.GetPath(), "/") + "/" + req.GetAgentId()
}

// Reply gives an agent one message and returns its answer: the contract's unary
// form, without a journal. A question of the agent is the error
// INPUT_REQUIRED, since nobody can answer it.
func Reply(ctx context.Context, a Agent, m *a2av1.Message) (*a2av1.Message, error) {
	info, err := a.Info(ctx)
	if err != nil {
		return nil, err
	}
	return ReplyTo(ctx, a, &teamv1.ProcessRequest{AgentId: info.GetId(), Message: m})
}

// ReplyTo is Reply with a whole request.
func ReplyTo(ctx context.Context, a Agent, req *teamv1.ProcessRequest) (*a2av1.Message, error) {
	m, _, err := ReplyFor(ctx, a, req)
	return m, err
}

// ReplyFor is ReplyTo with what it has cost; that of an error is in the error.
func ReplyFor(ctx context.Context, a Agent, req *teamv1.ProcessRequest) (*a2av1.Message, *teamv1.Spent, error) {
	ctx = With(ctx, From(ctx))
	var reply *teamv1.Reply
	var question *teamv1.Asked
	var seq int64
	for ev, err := range a.Process(ctx, req) {
		if err != nil {
			return nil, nil, err
		}
		if r := ev.GetReply(); r != nil && ev.GetScope() == req.GetScope() {
			reply = r
			continue
		}
		if q := ev.GetAsked(); q != nil {
			question = q
		}
		seq++
		ev.Seq = seq
		ev.Time = timestamppb.New(time.Now())
	}
	switch {
	case reply.GetMessage() != nil:
		return reply.GetMessage(), reply.GetSpent(), nil
	case reply != nil:
		return nil, nil, Errorf(CodeInternal, ReasonNoResponse, "agent %q ended without a message", req.GetAgentId())
	case question != nil:
		return nil, nil, Errorf(CodeFailedPrecondition, ReasonInputRequired, "agent %q asks: %s", req.GetAgentId(), Text(question.GetMessage()))
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	}
	return nil, nil, Errorf(CodeInternal, ReasonNoResponse, "agent %q ended without an answer", req.GetAgentId())
}

// Completed derives what an agent left out of its reply in a scope: the id and
// the role. The reply itself is not changed.
func (r *Run) Completed(scope string, m *a2av1.Message) *a2av1.Message {
	if m.GetMessageId() != "" && m.GetRole() == a2av1.Role_ROLE_AGENT {
		return m
	}
	id := m.GetMessageId()
	if id == "" {
		id = r.ID(scope, "reply", 1)
	}
	return &a2av1.Message{
		MessageId: id, ContextId: m.GetContextId(), TaskId: m.GetTaskId(), Role: a2av1.Role_ROLE_AGENT, Parts: m.GetParts(),
		Metadata: m.GetMetadata(), Extensions: m.GetExtensions(), ReferenceTaskIds: m.GetReferenceTaskIds(),
	}
}

// Sleep waits, or returns the cause of ctx's end.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// MessageOf returns the message that an event of a run holds, for references by
// sequence: a reply, an answer, a follow-up, what a model said, what a middleware
// made of a message, a result that is to be judged, or what a round of revision is
// given; nil when it holds none. root is the id of the run's root task.
func MessageOf(root string, ev *teamv1.Event) *a2av1.Message {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Ended:
		if t := k.Ended.GetTurn(); t != nil {
			m := NewMessage(t.GetText())
			m.MessageId = (&Run{Root: root}).ID(ev.GetScope(), "reply", 1)
			return m
		}
		return k.Ended.GetReply()
	case *teamv1.Event_Answered:
		return k.Answered.GetMessage()
	case *teamv1.Event_Received:
		return k.Received.GetMessage()
	case *teamv1.Event_Checked:
		return k.Checked.GetMessage()
	case *teamv1.Event_Decided:
		for _, step := range k.Decided.GetSteps() {
			if step.GetKind() == teamv1.Step_KIND_JUDGE {
				return step.GetInput().GetMessage()
			}
		}
		return k.Decided.GetInput()
	}
	return nil
}
