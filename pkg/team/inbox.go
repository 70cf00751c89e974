package team

import (
	"context"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// inbox holds the messages that have arrived and are not on record.
type inbox struct {
	listener *agent.Listener
	unread   []*teamv1.Inbound // taken from the listener
}

// hasUnread reports whether there are messages.
func (b *inbox) hasUnread() bool {
	if len(b.unread) == 0 {
		b.unread = b.listener.Take()
	}
	return len(b.unread) > 0
}

// take returns the messages and removes them.
func (b *inbox) take() []*teamv1.Inbound {
	list := b.unread
	b.unread = nil
	return list
}

// recordInputs records the messages that have arrived: follow-ups, and answers to questions of the
// scope and below it.
func (p *process) recordInputs() error {
	for _, in := range p.inbox.take() {
		ev := &teamv1.Event{Scope: in.GetScope(), Agent: p.Path}
		switch k := in.GetKind().(type) {
		case *teamv1.Inbound_Received:
			k.Received.Inbound = in.GetN()
			ev.Kind = &teamv1.Event_Received{Received: k.Received}
		case *teamv1.Inbound_Answered:
			k.Answered.Inbound = in.GetN()
			if !p.isOpen(k.Answered.GetQuestion()) {
				ev.Kind = &teamv1.Event_Received{Received: &teamv1.Received{Message: k.Answered.GetMessage(), TooLate: true, Inbound: in.GetN()}}
				break
			}
			p.noteWait(in.GetScope(), k.Answered, p.run.Now())
			ev.Kind = &teamv1.Event_Answered{Answered: k.Answered}
		default:
			continue
		}
		if err := p.emitEvent(ev); err != nil {
			return err
		}
		p.schedulerWaits = false
	}
	return nil
}

// isOpen reports whether a question of an open step, or below it, waits for its answer.
func (s *State) isOpen(question string) bool {
	return slices.ContainsFunc(s.Open(), func(st *StepState) bool { return st.past.Asked.Find(question) != nil })
}

// noteWait stores in an answer how long the step that asked has waited for it.
func (s *State) noteWait(scope string, a *teamv1.Answered, now time.Time) {
	for st := range s.pending() {
		if agent.Within(scope, st.Scope) && !st.clock.Waits().IsZero() {
			a.Waiter = st.Scope
			a.Waited = durationpb.New(now.Sub(st.clock.Waits()))
		}
	}
}

// Posted is a message that others left for the agent, see agent.Mailbox.
type Posted struct {
	// Text of the message, for the model.
	Text string

	// upTo is the number up to which the messages are acknowledged once a turn was shown this one.
	upTo int64
}

// mailbox returns the tool set that brings messages to the agent; nil if there is none.
func (l *Loop) mailbox(ctx context.Context) agent.Mailbox {
	if !l.traits.UsesTools {
		return nil
	}
	for _, set := range l.toolSets(ctx) {
		if box, ok := set.(agent.Mailbox); ok {
			return box
		}
	}
	return nil
}

// readPosted records the unread messages before a decision to ask the model, so that the turn is
// shown the same ones after a crash. Without them the run goes on.
func (r *recorder) readPosted(ctx context.Context, d *choice) error {
	if !slices.ContainsFunc(d.Steps, func(s *teamv1.Step) bool { return s.GetKind() == teamv1.Step_KIND_MODEL }) {
		return nil
	}
	box := r.loop.mailbox(ctx)
	if box == nil {
		return nil
	}
	after := int64(0)
	if n := len(r.Posted); n > 0 {
		after = r.Posted[n-1].upTo
	}
	texts, upTo, err := box.Unread(ctx, after)
	switch {
	case err != nil:
		r.loop.cfg.Log.Warn("messages could not be read; the agent goes on without them", zap.String("agent", r.Path), zap.String("from", box.Name()), zap.Error(err))
		return nil
	case len(texts) == 0:
		return nil
	}
	list := make([]*structpb.Value, len(texts))
	for i, text := range texts {
		list[i] = structpb.NewStringValue(text)
	}
	return r.emit("", &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{
		Code: agent.NoteMessages, Text: "messages shown to the model: " + strconv.Itoa(len(texts)),
		Details: &structpb.Struct{Fields: map[string]*structpb.Value{"messages": structpb.NewListValue(&structpb.ListValue{Values: list}), "up_to": structpb.NewNumberValue(float64(upTo))}},
	}}})
}

// applyPosted folds the messages that the next turn is shown.
func (f *fold) applyPosted(n *teamv1.Noted) {
	details := n.GetDetails().GetFields()
	for _, v := range details["messages"].GetListValue().GetValues() {
		f.Posted = append(f.Posted, Posted{Text: v.GetStringValue(), upTo: int64(details["up_to"].GetNumberValue())})
	}
}

// mail acknowledges the messages in Posted.
type mail struct {
	acknowledged int // how many of them are acknowledged
}

// acknowledge acknowledges the messages that were shown to model turns that have ended. A process that
// continues a run repeats it, because the acknowledgment may have been lost.
func (m *mail) acknowledge(ctx context.Context, l *Loop, s *State) {
	shown := 0
	for _, st := range s.Steps {
		if st.Step.GetKind() == teamv1.Step_KIND_MODEL && st.Turn != nil {
			shown = max(shown, st.PostedBefore)
		}
	}
	if shown <= m.acknowledged {
		return
	}
	box := l.mailbox(ctx)
	if box == nil {
		return
	}
	if err := box.Acknowledge(ctx, s.Posted[shown-1].upTo); err != nil {
		l.cfg.Log.Warn("messages could not be acknowledged; they will be shown again", zap.String("agent", s.Path), zap.String("from", box.Name()), zap.Error(err))
		return
	}
	m.acknowledged = shown
}
