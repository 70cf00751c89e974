package gemini

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// answer is an answer that is assembled from the events of the stream.
type answer struct {
	by     string               // the name of the model in the configuration
	before []agent.ModelMessage // the conversation
	parts  []*partialPart
	finish string
	model  string
	used   agent.Usage

	counted bool // used includes all output; the provider reports it while it generates
}

// partialPart is a part that is still being received. Only text parts arrive in pieces.
type partialPart struct {
	part *part
	text strings.Builder
}

// Add implements model.Answer.
func (a *answer) Add(data []byte) (string, error) {
	var ev event
	if err := json.Unmarshal(data, &ev); err != nil {
		return "", fmt.Errorf("reading the stream: %w", err)
	}
	if ev.Candidates == nil && ev.UsageMetadata == nil && ev.Feedback == nil || model.Holds(ev.Error) {
		return "", model.Reported(data)
	}
	return a.fold(&ev), nil
}

// fold applies an event to the answer and returns the text it contains. A prompt that the provider does
// not answer ends the turn with the reason.
func (a *answer) fold(ev *event) string {
	if ev.ModelVersion != "" {
		a.model = ev.ModelVersion
	}
	a.counted = a.counted && !slices.ContainsFunc(ev.Candidates, func(c *candidate) bool { return c != nil && len(c.Content.Parts) > 0 })
	if u := ev.UsageMetadata; u != nil {
		a.counted = true
		a.used = agent.Usage{
			Input: int64(u.PromptTokenCount + u.ToolUsePromptTokenCount), CachedInput: int64(u.CachedContentTokenCount),
			Output: int64(u.CandidatesTokenCount + u.ThoughtsTokenCount), Reasoning: int64(u.ThoughtsTokenCount),
		}
	}
	if f := ev.Feedback; f != nil && f.BlockReason != "" && len(ev.Candidates) == 0 {
		a.finish = f.BlockReason
	}
	text := ""
	for _, c := range ev.Candidates {
		if c == nil || c.Index != 0 {
			continue
		}
		if c.FinishReason != "" && c.FinishReason != "FINISH_REASON_UNSPECIFIED" {
			a.finish = c.FinishReason
		}
		for _, p := range c.Content.Parts {
			text += a.part(p)
		}
	}
	return text
}

// Finish implements model.Answer.
func (a *answer) Finish(bool) string { return a.finish }

// Used implements model.Answer.
func (a *answer) Used() (agent.Usage, bool) { return a.used, a.counted }

// part adds a part and returns the text for the reader. A part that consists only of a signature is
// dropped, because it could not be sent back: parts must not be empty.
func (a *answer) part(p *part) string {
	switch {
	case p == nil || p.Text == "" && p.FunctionCall == nil && p.InlineData == nil:
		return ""
	case p.InlineData != nil:
		a.parts = append(a.parts, &partialPart{part: &part{InlineData: p.InlineData, Thought: p.Thought, ThoughtSignature: p.ThoughtSignature}})
		return ""
	case p.FunctionCall != nil:
		a.parts = append(a.parts, &partialPart{part: &part{FunctionCall: p.FunctionCall, ThoughtSignature: p.ThoughtSignature}})
		return ""
	}
	last := len(a.parts) - 1
	if last < 0 || !isText(a.parts[last].part) || p.Thought || len(p.ThoughtSignature) > 0 {
		a.parts = append(a.parts, &partialPart{part: &part{Thought: p.Thought, ThoughtSignature: p.ThoughtSignature}})
		last++
	}
	a.parts[last].text.WriteString(p.Text)
	if p.Thought {
		return ""
	}
	return p.Text
}

// isText reports whether a part is text without a signature.
func isText(p *part) bool {
	return p.FunctionCall == nil && p.InlineData == nil && !p.Thought && len(p.ThoughtSignature) == 0
}

// content returns the parts of the turn, and whether the provider signed any of them.
func (a *answer) content() (parts []*part, signed bool) {
	for _, g := range a.parts {
		g.part.Text = g.text.String()
		parts = append(parts, g.part)
		signed = signed || len(g.part.ThoughtSignature) > 0
	}
	return parts, signed
}
