package project

import (
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Public returns an event as another server may see it, nil if it must not. The end of the fold's
// own task holds its answer instead of a reference. ev must have been applied.
func (f *Fold) Public(ev *teamv1.Event) *teamv1.Event {
	if k, ok := ev.GetKind().(*teamv1.Event_Ended); ok && ev.GetScope() == f.scope && k.Ended.GetReplyRef() != 0 {
		ended := proto.CloneOf(k.Ended)
		ended.Result = &teamv1.Ended_Reply{Reply: f.answer}
		return &teamv1.Event{Seq: ev.GetSeq(), Time: ev.GetTime(), Scope: ev.GetScope(), Agent: ev.GetAgent(), Kind: &teamv1.Event_Ended{Ended: ended}}
	}
	return Public(ev)
}

// Public returns an event as callers may see it, nil if they must not. It omits the owner, pins,
// seed, trace, history and conversation of the run, and the state that a model's provider or a tool
// wants back.
func Public(ev *teamv1.Event) *teamv1.Event {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Claimed:
		return nil
	case *teamv1.Event_Accepted:
		acc := proto.CloneOf(k.Accepted)
		acc.Owner, acc.Pins, acc.Seed, acc.Trace, acc.History, acc.Conversation = "", nil, 0, nil, nil, nil
		return &teamv1.Event{Seq: ev.GetSeq(), Time: ev.GetTime(), Scope: ev.GetScope(), Agent: ev.GetAgent(), Kind: &teamv1.Event_Accepted{Accepted: acc}}
	case *teamv1.Event_Asked:
		if len(k.Asked.GetToolState()) > 0 {
			ev = proto.CloneOf(ev)
			ev.GetAsked().ToolState = nil // only for the tool
		}
	case *teamv1.Event_Ended:
		if len(k.Ended.GetTurn().GetState()) > 0 {
			ev = proto.CloneOf(ev)
			ev.GetEnded().GetTurn().State = nil // only for the model's provider
		}
	}
	return ev
}
