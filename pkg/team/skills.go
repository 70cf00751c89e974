package team

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// withSkills is a system text with the instructions of skills behind it (R-003-34).
func withSkills(instructions string, skills []*teamv1.Skill) string {
	var b strings.Builder
	b.WriteString(instructions)
	for _, s := range skills {
		if s.GetInstructions() == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		name := s.GetName()
		if name == "" {
			name = s.GetId()
		}
		b.WriteString("Skill " + name + ":\n" + s.GetInstructions())
	}
	return b.String()
}

// shown are skills as others see them: how a thing is done is the agent's own.
func shown(skills []*teamv1.Skill) []*teamv1.Skill {
	out := slices.Clone(skills)
	for i, s := range out {
		if s.GetInstructions() != "" {
			out[i] = proto.CloneOf(s)
			out[i].Instructions = ""
		}
	}
	return out
}
