package remote

import teamv1 "github.com/agentteams/team-server/gen/team/v1"

// describe returns the description that a peer has sent of its agent, as that of the agent with this
// id. Texts and lists are limited as those of a card are, and marked as written by another server.
func describe(id string, info *teamv1.AgentInfo) *teamv1.AgentInfo {
	info.Id, info.Name, info.Description, info.External = id, clip(info.GetName()), limit(info.GetDescription()), true
	info.Skills = info.GetSkills()[:min(len(info.GetSkills()), maxSkills)]
	info.Capabilities = info.GetCapabilities()[:min(len(info.GetCapabilities()), maxSkills)]
	for i, id := range info.GetCapabilities() {
		info.Capabilities[i] = clip(id)
	}
	for _, s := range info.GetSkills() {
		s.Id, s.Name, s.Description, s.Instructions = clip(s.GetId()), clip(s.GetName()), limit(s.GetDescription()), ""
	}
	info.ExternalSkills = nil
	for _, s := range info.GetSkills() {
		info.ExternalSkills = append(info.ExternalSkills, s.GetId())
	}
	return info
}
