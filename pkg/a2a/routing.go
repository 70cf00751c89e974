package a2a

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// RoutingURI names the extension by which an agent of another server takes part
// in a swarm: a message carries a team.v1.RoutingRequest as metadata, the status
// of the answer a team.v1.RoutingReply.
const RoutingURI = "https://github.com/agentteams/team-server/ext/routing/v1"

// routes reports whether an agent can hand over: one that a model answers for.
func routes(info *teamv1.AgentInfo) bool {
	switch m := info.GetMetadata(); {
	case m["type"] == "model", m["mode"] == "coordinator", m["mode"] == "swarm":
		return true
	}
	return false
}

// transfersOf are the members of the caller's that a message lets the agent hand
// over to.
func transfersOf(m *a2av1.Message) []*teamv1.TransferTarget {
	v := m.GetMetadata().GetFields()[RoutingURI].GetStructValue()
	if v == nil {
		return nil
	}
	req := &teamv1.RoutingRequest{}
	b, err := v.MarshalJSON()
	if err != nil || (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, req) != nil {
		return nil
	}
	var targets []*teamv1.TransferTarget
	for _, t := range req.GetTransfers() {
		targets = append(targets, &teamv1.TransferTarget{Id: t.GetId(), Description: t.GetDescription()})
	}
	return targets
}

// handsOver says in a status that control goes to a member of the caller's.
func (f *Fold) handsOver(t *teamv1.Transfer) *a2av1.Message {
	text := "hands over to " + t.GetTo()
	if t.GetMessage() != "" {
		text += ": " + t.GetMessage()
	}
	m := agent.NewMessage(text)
	m.MessageId = (&agent.Run{Root: f.root}).ID(f.scope, "transfer", 1)
	m.Extensions = []string{RoutingURI}
	m.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{RoutingURI: structpb.NewStructValue(&structpb.Struct{
		Fields: map[string]*structpb.Value{"transferTo": structpb.NewStringValue(t.GetTo()), "message": structpb.NewStringValue(t.GetMessage())},
	})}}
	return m
}
