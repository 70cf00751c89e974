package leader

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

var readSpec = agent.ToolSpec{
	Name:        prompt.ReadTool,
	Description: "Reads on in a result that was too long to be shown whole.",
	Parameters: json.RawMessage(`{"type":"object","properties":{"id":{"type":"string","description":"The result's name."},` +
		`"offset":{"type":"integer","minimum":0,"description":"Byte to begin with."}},"required":["id","offset"]}`),
}

// hasLong reports whether a result was too long to be shown in full: one of a member, or one that
// the run was given.
func hasLong(s *team.State) bool {
	long := func(p *a2av1.Part) bool { return agent.ResultName(p) != "" && len(p.GetText()) > agent.MaxResult }
	return slices.ContainsFunc(s.Steps, func(st *team.StepState) bool {
		return st.ByMember() && len(prompt.Text(st.Message)) > agent.MaxResult ||
			st.Step.GetName() == checkTool && len(st.Tool.GetText()) > agent.MaxResult // the result of a detached task
	}) ||
		slices.ContainsFunc(given(s), long)
}

// given returns the parts of all messages that the run was given.
func given(s *team.State) []*a2av1.Part {
	parts := slices.Clip(s.Input.GetParts())
	for _, m := range s.History {
		parts = append(parts, m.GetParts()...)
	}
	return parts
}

// readResult answers a call of read_result with a piece of a result.
func readResult(s *team.State, arguments string, look team.Look) *teamv1.ToolResult {
	args, err := prompt.Arguments(arguments)
	if err != nil {
		return toolError(`the arguments are not a JSON object; write {"id": "…", "offset": 0}`)
	}
	name, err := prompt.String(args, "id", true)
	if err != nil {
		return toolError(err.Error())
	}
	offset := 0
	if raw, ok := args["offset"]; ok && json.Unmarshal(raw, &offset) != nil {
		return toolError("argument offset must be a whole number, got " + prompt.Kind(raw))
	}
	text, ok := resultNamed(s, name, look)
	switch {
	case !ok:
		return toolError(fmt.Sprintf("there is no result %q", agent.Quote(name)))
	case offset < 0 || offset >= len(text):
		return toolError(fmt.Sprintf("offset %d is out of range; the result has %d bytes", offset, len(text)))
	}
	return toolText(pieceOf(text, offset, min(agent.MaxResult, resultBound(s.Window))))
}

// resultNamed returns the text of the result with a name. It looks for it in the steps of tools and
// members, also in detached ones, and in the messages that the run was given.
func resultNamed(s *team.State, name string, look team.Look) (string, bool) {
	for _, st := range s.Steps {
		if st.Tool != nil && st.Step.GetId() == name && st.Step.GetName() != prompt.ReadTool {
			return st.Tool.GetText(), true
		}
		if !st.ByMember() || st.Message == nil || s.TaskID(st) != name && st.Step.GetId() != name {
			continue
		}
		if st.Step.GetDetached() {
			st = st.EndedAs(look.Detached(st))
		}
		return prompt.Text(st.Message), st.Message != nil
	}
	for _, p := range given(s) {
		if agent.ResultName(p) == name {
			return p.GetText(), true
		}
	}
	return "", false
}

// pieceOf returns a piece of a text of at most size bytes from an offset in bytes, and says where the next
// piece begins. It does not split characters.
func pieceOf(text string, offset, size int) string {
	for offset < len(text) && !utf8.RuneStart(text[offset]) {
		offset++
	}
	piece := agent.Excerpt(text[offset:], size)
	if end := offset + len(piece); end < len(text) {
		return fmt.Sprintf("%s\n\n[bytes %d to %d of %d; read on from offset %d]", piece, offset, end, len(text), end)
	}
	return piece
}
