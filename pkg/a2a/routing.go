package a2a

import (
	"google.golang.org/protobuf/encoding/protojson"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
)

// RoutingURI is the URI of the extension with which an agent on another server takes part in a
// swarm. The metadata of a message has a team.v1.RoutingRequest under this key, and that of the
// status in the answer a team.v1.RoutingReply.
const RoutingURI = project.RoutingURI

// routes reports whether an agent can hand control over to another one, because a model decides
// for it.
func routes(info *teamv1.AgentInfo) bool {
	switch m := info.GetMetadata(); {
	case m["type"] == "model", m["mode"] == "coordinator", m["mode"] == "swarm":
		return true
	}
	return false
}

// transfersOf returns the agents of the caller to which the message permits the agent to hand
// control over. It returns nil if there are none or the metadata is invalid.
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
		targets = append(targets, &teamv1.TransferTarget{Id: t.GetId(), Description: t.GetDescription(), External: true})
	}
	return targets
}
