package team

import (
	"context"
	"slices"
	"strconv"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// notePosted is the code of the note that records the messages that a model turn is shown.
const notePosted = "MESSAGES"

// Posted is a message that others left for the agent, see agent.Mailbox.
type Posted struct {
	// Text of the message, for the model.
	Text string

	// upTo is the number up to which the messages are acknowledged once a turn was shown this one.
	upTo int64
}

// mailbox returns the tool set that brings messages to the agent; nil if there is none.
func (p *process) mailbox(ctx context.Context) agent.Mailbox {
	if !p.traits.UsesTools {
		return nil
	}
	for _, set := range p.toolSets(ctx) {
		if box, ok := set.(agent.Mailbox); ok {
			return box
		}
	}
	return nil
}

// readPosted records the unread messages before a decision to ask the model, so that the turn is
// shown the same ones after a crash. Without them the run goes on.
func (p *process) readPosted(ctx context.Context, d *choice) error {
	if !slices.ContainsFunc(d.Steps, func(s *teamv1.Step) bool { return s.GetKind() == teamv1.Step_KIND_MODEL }) {
		return nil
	}
	box := p.mailbox(ctx)
	if box == nil {
		return nil
	}
	after := int64(0)
	if n := len(p.Posted); n > 0 {
		after = p.Posted[n-1].upTo
	}
	texts, upTo, err := box.Unread(ctx, after)
	switch {
	case err != nil:
		p.cfg.Log.Warn("messages could not be read; the agent goes on without them", zap.String("agent", p.Path), zap.String("from", box.Name()), zap.Error(err))
		return nil
	case len(texts) == 0:
		return nil
	}
	list := make([]*structpb.Value, len(texts))
	for i, text := range texts {
		list[i] = structpb.NewStringValue(text)
	}
	return p.emit("", &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{
		Code: notePosted, Text: "messages shown to the model: " + strconv.Itoa(len(texts)),
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

// acknowledge acknowledges the messages that were shown to model turns that have ended. A process that
// continues a run repeats it, because the acknowledgment may have been lost.
func (p *process) acknowledge(ctx context.Context) {
	shown := 0
	for _, st := range p.Steps {
		if st.Step.GetKind() == teamv1.Step_KIND_MODEL && st.Turn != nil {
			shown = max(shown, st.PostedBefore)
		}
	}
	if shown <= p.acknowledged {
		return
	}
	box := p.mailbox(ctx)
	if box == nil {
		return
	}
	if err := box.Acknowledge(ctx, p.Posted[shown-1].upTo); err != nil {
		p.cfg.Log.Warn("messages could not be acknowledged; they will be shown again", zap.String("agent", p.Path), zap.String("from", box.Name()), zap.Error(err))
		return
	}
	p.acknowledged = shown
}
