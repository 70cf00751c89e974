package a2a

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/agent"
)

// TeamRunURI is the URI of the team-run extension. Tasks and their updates have a team.v1.TeamRun
// in their metadata under this key.
const TeamRunURI = project.TeamRunURI

// RunOf returns the TeamRun in the metadata of a task or an update, or nil if there is none or it is invalid.
func RunOf(metadata *structpb.Struct) *teamv1.TeamRun { return project.RunOf(metadata) }

// RoutingURI is the URI of the extension with which an agent on another server takes part in a
// swarm. The metadata of a message has a team.v1.RoutingRequest under this key, and that of the
// status in the answer a team.v1.RoutingReply.
const RoutingURI = project.RoutingURI

// InputsURI is the URI of the extension with which a card shows the values that an agent wants by name. Its params are the
// JSON Schema of an object: that of a data part of a message with which a task begins.
const InputsURI = project.InputsURI

// inputsText says what the inputs of an agent are, for people and models that read only texts.
func inputsText(schema *structpb.Struct) string {
	required := map[string]bool{}
	for _, v := range schema.GetFields()["required"].GetListValue().GetValues() {
		required[v.GetStringValue()] = true
	}
	text, properties := "A message that begins a task has a data part with", schema.GetFields()["properties"].GetStructValue().GetFields()
	for i, name := range slices.Sorted(maps.Keys(properties)) {
		if i > 0 {
			text += ","
		}
		if text += " " + name; !required[name] {
			text += " (optional)"
		}
	}
	return text + "."
}

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
// control over. It returns nil if there are none or the metadata is invalid: the limits and the form of
// ids are those of the Agent service.
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
	var c checker
	if c.transfers(targets); c.Err() != nil {
		return nil
	}
	return external(targets)
}

// external returns the agents of a caller to which an agent may hand control over, each id once. They
// count as described by another server, whatever the caller says, and long descriptions are cut.
func external(sent []*teamv1.TransferTarget) []*teamv1.TransferTarget {
	var targets []*teamv1.TransferTarget
	seen := map[string]bool{}
	for _, t := range sent {
		if seen[t.GetId()] {
			continue
		}
		seen[t.GetId()] = true
		targets = append(targets, &teamv1.TransferTarget{Id: t.GetId(), Description: agent.Excerpt(t.GetDescription(), maxDescription), External: true})
	}
	return targets
}
