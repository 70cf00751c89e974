package config

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/references"
	"github.com/agentteams/team-server/internal/config/source"
)

// leaders gives each leader that is an agent what the team needs of that agent.
func (k *checker) leaders() {
	for _, id := range sorted(k.Server.GetTeams()) {
		t := k.Server.GetTeams()[id]
		l := t.GetCoordinator().GetLeader()
		if l.GetAgent() == "" {
			continue
		}
		at := k.at("teams", id, "coordinator", "leader", "agent")
		if !k.known(references.Reference{Kind: references.Agent, Name: l.GetAgent(), By: fmt.Sprintf("team %q has leader", id), Path: at.Path()}) {
			continue
		}
		a := k.Server.GetAgents()[l.GetAgent()]
		leads(at, l.GetAgent(), a)
		if i := slices.IndexFunc(t.GetMembers(), func(m *teamv1.MemberConfig) bool { return m.GetAgent() == l.GetAgent() }); i >= 0 {
			k.at("teams", id, "members", i).Fault(fmt.Sprintf("%q leads the team, and cannot be a member of it too", l.GetAgent()), "remove it from members")
		}
		l.Model, l.Instructions, l.Tools, l.Skills, l.Settings = a.GetModel(), a.GetInstructions(), a.GetTools(), a.GetSkills(), proto.CloneOf(a.GetSettings())
	}
}

// leads reports an agent that cannot lead a team, nil being a team, and keys of it that would not apply to the leader.
func leads(at source.Place, id string, a *teamv1.AgentConfig) {
	if a == nil || Kind(a) != "model" || a.GetModel() == "" {
		at.Fault(fmt.Sprintf("%q cannot lead a team, because it has no model", id), "name an agent with a model, or write coordinator: {model: NAME, instructions: TEXT}")
		return
	}
	for key, set := range map[string]bool{
		"output_schema": a.GetOutputSchema() != "", "guardrails": a.GetGuardrails() != nil, "limits": a.GetLimits() != nil, "memory": a.Memory != nil, //nolint:protogetter // set or not matters
		"conversation": a.GetConversation() != nil, "on_truncated": a.GetOnTruncated() != 0, "allow_empty": a.GetAllowEmpty(),
	} {
		if set {
			at.Fault(fmt.Sprintf("%q cannot lead a team, because it has %s", id, key), fmt.Sprintf("a leader answers for its team: move %s to the team, or write coordinator: {model: NAME, instructions: TEXT}", key))
		}
	}
}
