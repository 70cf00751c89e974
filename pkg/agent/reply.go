package agent

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Text returns the texts of the text parts of m, joined by newlines. Other parts are ignored.
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

// MaxText is the maximum length in bytes of a text that is made by inserting others.
const MaxText = 4 << 20

// TextTooLong returns the error for a text that would have more than MaxText bytes. what names the text.
func TextTooLong(what string, length int) *Error {
	return Errorf(CodeResourceExhausted, ReasonInsufficientResources,
		"%s would have %d bytes with what is inserted, and at most %d are allowed; use fewer placeholders, or shorter messages and results", what, length, MaxText)
}

// NewMessage returns a message with the role of an agent and one text part. It has no id; see
// Run.Completed.
func NewMessage(text string) *a2av1.Message {
	return &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Parts: TextParts(text)}
}

// UserMessage returns a message with this id, the role of a user and one text part.
func UserMessage(id, text string) *a2av1.Message {
	return &a2av1.Message{MessageId: id, Role: a2av1.Role_ROLE_USER, Parts: TextParts(text)}
}

// TextParts returns a list with one text part.
func TextParts(text string) []*a2av1.Part {
	return []*a2av1.Part{{Content: &a2av1.Part_Text{Text: text}}}
}

// ReplyEvent returns the event with which Process answers req: the last one of its sequence.
func ReplyEvent(req *teamv1.ProcessRequest, r *teamv1.Reply) *teamv1.Event {
	return &teamv1.Event{Scope: req.GetScope(), Agent: Path(req), Kind: &teamv1.Event_Reply{Reply: r}}
}

// Path returns the path of the agent that works on req: the ids of the agents above it and its
// own, joined by slashes. It is the value of Event.Agent.
func Path(req *teamv1.ProcessRequest) string {
	if len(req.GetPath()) == 0 {
		return req.GetAgentId()
	}
	return strings.Join(req.GetPath(), "/") + "/" + req.GetAgentId()
}

// Reply sends one message to an agent and returns its answer. It is for the use of agents as a
// library: it needs no journal and no Run in ctx. An agent that asks a question returns the error
// INPUT_REQUIRED: a caller of Reply cannot answer it.
func Reply(ctx context.Context, a Agent, m *a2av1.Message) (*a2av1.Message, error) {
	info, err := a.Info(ctx)
	if err != nil {
		return nil, err
	}
	return ReplyTo(ctx, a, &teamv1.ProcessRequest{AgentId: info.GetId(), Message: m})
}

// ReplyTo is like Reply, but takes a complete request.
func ReplyTo(ctx context.Context, a Agent, req *teamv1.ProcessRequest) (*a2av1.Message, error) {
	m, _, err := ReplyFor(ctx, a, req)
	return m, err
}

// ReplyFor is like ReplyTo, but also returns what the answer cost. The cost of a failed call is
// in the Spent field of the *Error.
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

// Completed returns m with the fields that agents may leave empty: a message id, derived from the
// scope, and the role of an agent. It returns m itself if nothing is missing, and else a copy.
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

// Sleep waits for d and returns nil, or returns the cause of ctx as soon as ctx ends. If d is not
// positive, it returns at once.
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

// MessageOf returns the message that an event holds, so that other events can refer to it by
// sequence number: a reply, an answer, a follow-up, a turn of a model, the message that a
// middleware has returned, a result that is to be judged, or the input of a round of revision. It
// returns nil if the event holds none. root is the id of the root task.
func MessageOf(root string, ev *teamv1.Event) *a2av1.Message {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Ended:
		if t := k.Ended.GetTurn(); t != nil {
			m := NewMessage(t.GetText())
			if len(t.GetFiles()) > 0 && t.GetText() == "" {
				m.Parts = nil
			}
			m.Parts = append(m.Parts, t.GetFiles()...)
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

// JoinTexts returns parts with plain texts in a row joined to one, as readers see pieces of an artifact.
func JoinTexts(parts []*a2av1.Part) []*a2av1.Part {
	var list []*a2av1.Part
	for i := 0; i < len(parts); i++ {
		var text strings.Builder
		n := i
		for ; n < len(parts) && IsPlainText(parts[n]); n++ {
			text.WriteString(parts[n].GetText())
		}
		if n == i {
			list = append(list, parts[i])
			continue
		}
		list, i = append(list, TextParts(text.String())...), n-1
	}
	return list
}

// IsPlainText reports whether a part is a text and nothing else.
func IsPlainText(p *a2av1.Part) bool {
	_, text := p.GetContent().(*a2av1.Part_Text)
	return text && p.GetMetadata() == nil && p.GetFilename() == "" && p.GetMediaType() == ""
}
