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

// hasLong reports whether a result was too long to be shown whole: of a member,
// or among what the run was given.
func hasLong(s *team.State) bool {
	long := func(p *a2av1.Part) bool { return agent.ResultName(p) != "" && len(p.GetText()) > agent.MaxResult }
	return slices.ContainsFunc(s.Steps, func(st *team.StepState) bool {
		return st.ByMember() && len(prompt.Text(st.Message)) > agent.MaxResult ||
			st.Step.GetName() == checkTool && len(st.Tool.GetText()) > agent.MaxResult // told of work elsewhere
	}) ||
		slices.ContainsFunc(given(s), long)
}

// given are the parts of all that the run was given.
func given(s *team.State) []*a2av1.Part {
	parts := slices.Clip(s.Input.GetParts())
	for _, m := range s.History {
		parts = append(parts, m.GetParts()...)
	}
	return parts
}

// readResult returns a piece of a result.
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
	return toolText(pieceOf(text, offset))
}

// resultNamed finds the text of a result: of a member, also of one that works
// elsewhere, or among what was given.
func resultNamed(s *team.State, name string, look team.Look) (string, bool) {
	for _, st := range s.Steps {
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

// pieceOf is a piece of a text from an offset on, with whole characters, and
// where the next one begins.
func pieceOf(text string, offset int) string {
	for offset < len(text) && !utf8.RuneStart(text[offset]) {
		offset++
	}
	piece := agent.Excerpt(text[offset:], agent.MaxResult)
	if end := offset + len(piece); end < len(text) {
		return fmt.Sprintf("%s\n\n[bytes %d to %d of %d; read on from offset %d]", piece, offset, end, len(text), end)
	}
	return piece
}
