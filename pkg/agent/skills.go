package agent

import (
	"slices"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// PublicSkills returns skills as others see them: without instructions, which are the
// agent's own.
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
