package team

import (
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// joinResults puts the results of steps into one message: in the order of the
// steps, each under a heading with its member's id (C-16). A single result is
// returned as it is.
func joinResults(steps []*StepState) *a2av1.Message {
	if len(steps) == 1 && steps[0].Message != nil {
		return steps[0].Message
	}
	var j joiner
	for _, st := range steps {
		j.section(heading(st, steps), resultParts(st))
	}
	return j.message()
}

// heading names the author of a result: the member; where it has several of
// the results also the step; a step of people by its own name.
func heading(st *StepState, among []*StepState) string {
	member, name := st.Step.GetMember(), st.Step.GetName()
	if member == "" {
		return name
	}
	for _, other := range among {
		if other != st && other.Step.GetMember() == member && name != "" {
			return member + " (" + name + ")"
		}
	}
	return member
}

// resultParts is the content of a result; what is not there is said in words.
func resultParts(st *StepState) []*a2av1.Part {
	switch {
	case len(st.Message.GetParts()) > 0:
		return st.Message.GetParts()
	case st.Err != nil:
		return agent.TextParts("(failed: " + st.Err.Message + ")")
	}
	return agent.TextParts("(no content)")
}

// joiner builds a message out of sections. Plain texts that follow each other
// become one part; parts of others are taken over, never changed.
type joiner struct {
	parts []*a2av1.Part
	text  strings.Builder
}

func (j *joiner) section(title string, parts []*a2av1.Part) {
	j.write("## " + title)
	j.add(parts)
}

func (j *joiner) add(parts []*a2av1.Part) {
	for _, p := range parts {
		if plainText(p) {
			j.write(p.GetText())
			continue
		}
		j.flush()
		j.parts = append(j.parts, p)
	}
}

func (j *joiner) write(text string) {
	if j.text.Len() > 0 {
		j.text.WriteString("\n\n")
	}
	j.text.WriteString(text)
}

func (j *joiner) flush() {
	if j.text.Len() > 0 {
		j.parts = append(j.parts, agent.TextParts(j.text.String())...)
		j.text.Reset()
	}
}

func (j *joiner) message() *a2av1.Message {
	j.flush()
	return &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Parts: j.parts}
}

// plainText reports whether a part is text and nothing but text.
func plainText(p *a2av1.Part) bool {
	_, text := p.GetContent().(*a2av1.Part_Text)
	return text && p.GetMetadata() == nil && p.GetFilename() == "" &&
		(p.GetMediaType() == "" || p.GetMediaType() == "text/plain")
}
