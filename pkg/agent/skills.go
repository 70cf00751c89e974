package agent

import (
	"slices"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// PublicSkills returns the skills without their instructions, which only the agent's own model
// may see. The skills themselves are not changed.
func PublicSkills(skills []*teamv1.Skill) []*teamv1.Skill {
	out := slices.Clone(skills)
	for i, s := range out {
		if s.GetInstructions() != "" {
			out[i] = proto.CloneOf(s)
			out[i].Instructions = ""
		}
	}
	return out
}
