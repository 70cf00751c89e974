package remote

import (
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Limits of the description of an agent. The lists of a skill and the metadata have fewer entries than
// the lists of an agent.
const (
	maxTags     = 32
	maxMetadata = 64
)

// describe returns the description that a peer has sent of its agent, as that of the agent with this
// id. Texts and lists are limited as those of a card are, and marked as written by another server.
func describe(id string, sent *teamv1.AgentInfo) *teamv1.AgentInfo {
	info := &teamv1.AgentInfo{
		Id: id, Name: clip(sent.GetName()), Description: limit(sent.GetDescription()), External: true, MayReplyDirectly: sent.GetMayReplyDirectly(),
		InputModes: media(sent.GetInputModes()), OutputModes: media(sent.GetOutputModes()),
		FileModes: media(sent.GetFileModes()), UrlModes: media(sent.GetUrlModes()),
	}
	for k, v := range sent.GetMetadata() {
		if info.Metadata == nil {
			info.Metadata = map[string]string{}
		}
		if len(info.GetMetadata()) < maxMetadata {
			info.Metadata[clip(k)] = clip(v)
		}
	}
	describeSkills(info, sent.GetSkills())
	for _, skill := range sent.GetCapabilities() {
		if skill = clip(skill); skill != "" && len(info.GetCapabilities()) < maxSkills && !slices.Contains(info.GetCapabilities(), skill) {
			info.Capabilities = append(info.Capabilities, skill)
		}
	}
	return info
}

// describeSkills adds the skills that a peer names, each id once.
func describeSkills(info *teamv1.AgentInfo, skills []*teamv1.Skill) {
	for _, s := range skills {
		id := clip(s.GetId())
		if id == "" || len(info.GetSkills()) == maxSkills || slices.Contains(info.GetCapabilities(), id) {
			continue
		}
		info.Capabilities = append(info.Capabilities, id)
		info.Skills = append(info.Skills, &teamv1.Skill{Id: id, Name: clip(s.GetName()), Description: limit(s.GetDescription()), Tags: clipped(s.GetTags())})
	}
	info.ExternalSkills = slices.Clone(info.GetCapabilities())
}

// clipped returns the first tags of a skill.
func clipped(tags []string) []string {
	var out []string
	for _, t := range tags[:min(len(tags), maxTags)] {
		if t = clip(t); t != "" {
			out = append(out, t)
		}
	}
	return out
}
