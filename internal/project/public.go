package project

import (
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Public is an event as another server may see it; nil for one that is not. The
// answer of the fold's task stands in its end.
func (f *Fold) Public(ev *teamv1.Event) *teamv1.Event {
	if k, ok := ev.GetKind().(*teamv1.Event_Ended); ok && ev.GetScope() == f.scope && k.Ended.GetReplyRef() != 0 {
		ended := proto.CloneOf(k.Ended)
		ended.Result = &teamv1.Ended_Reply{Reply: f.answer}
		return &teamv1.Event{Seq: ev.GetSeq(), Time: ev.GetTime(), Scope: ev.GetScope(), Agent: ev.GetAgent(), Kind: &teamv1.Event_Ended{Ended: ended}}
	}
	return Public(ev)
}

// Public is an event as callers may see it, nil for one that is not shown: without
// owner, pins, seed, trace, conversation, and what a model's provider wants back.
func Public(ev *teamv1.Event) *teamv1.Event {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Claimed:
		return nil
	case *teamv1.Event_Accepted:
		acc := proto.CloneOf(k.Accepted)
		acc.Owner, acc.Pins, acc.Seed, acc.Trace, acc.History, acc.Conversation = "", nil, 0, nil, nil, nil
		return &teamv1.Event{Seq: ev.GetSeq(), Time: ev.GetTime(), Scope: ev.GetScope(), Agent: ev.GetAgent(), Kind: &teamv1.Event_Accepted{Accepted: acc}}
	case *teamv1.Event_Ended:
		if len(k.Ended.GetTurn().GetState()) > 0 {
			ev = proto.CloneOf(ev)
			ev.GetEnded().GetTurn().State = nil // between the model and its provider
		}
	}
	return ev
}
