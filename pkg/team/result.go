package team

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/excerpt"
)

// readTool is the tool by which a model reads on in a long result (S-64).
const readTool = "read_result"

// maxResult is how many bytes of a result a model is shown; the rest it can read
// with readTool (C-31).
const maxResult = agent.MaxResult

var readSpec = agent.ToolSpec{
	Name:        readTool,
	Description: "Reads on in a result that was too long to be shown whole.",
	Parameters: json.RawMessage(`{"type":"object","properties":{"id":{"type":"string","description":"The result's name."},` +
		`"offset":{"type":"integer","minimum":0,"description":"Byte to begin with."}},"required":["id","offset"]}`),
}

// resultText is a delegation's result in words, its text cut where it is long.
func resultText(s *State, st *StepState) string {
	return worded(st, cut(promptText(st.Message), ticket(s, st)))
}

// worded is a result for its reader: member, outcome, why it failed, and the text
// (R-002-39, R-002-2.4).
func worded(st *StepState, text string) string {
	switch {
	case !st.Done && st.Parked():
		return st.Step.GetMember() + ": waits for an answer of the user"
	case !st.Done:
		return st.Step.GetMember() + ": working"
	case st.Err != nil:
		return headOf(st) + "\n\n" + st.Err.Message
	case strings.TrimSpace(text) == "":
		return headOf(st) + "\n\n(member returned no content)"
	}
	return headOf(st) + "\n\n" + text
}

// headOf names the member of a result, its outcome, and the reason of a failure.
func headOf(st *StepState) string {
	head := st.Step.GetMember() + ": " + outcomeWord(st.Outcome)
	if st.Err != nil && st.Err.Reason != "" {
		head += " (" + st.Err.Reason + ")"
	}
	return head
}

// told is a result as another member is handed it: a long one whole, with its name.
func told(s *State, st *StepState) []*a2av1.Part {
	text := promptText(st.Message)
	if st.Err != nil || len(text) <= maxResult {
		return agent.TextParts(resultText(s, st))
	}
	return agent.ResultParts(headOf(st), text, ticket(s, st))
}

// cut shortens a long result and says where the rest is.
func cut(text, name string) string {
	if len(text) <= maxResult {
		return text
	}
	shown := excerpt.UpTo(text, maxResult)
	return fmt.Sprintf("%s\n\n[the first %d of %d bytes. The whole is result %q: read on with %s from offset %d]",
		shown, len(shown), len(text), name, readTool, len(shown))
}

// begun shortens a long result for a model that cannot read on.
func begun(text string) string {
	if len(text) <= maxResult {
		return text
	}
	shown := excerpt.UpTo(text, maxResult)
	return fmt.Sprintf("%s\n\n[the first %d of %d bytes]", shown, len(shown), len(text))
}

// hasLong reports whether a result was too long to be shown whole: of a member,
// or among what the run was given.
func hasLong(s *State) bool {
	long := func(p *a2av1.Part) bool { return agent.ResultName(p) != "" && len(p.GetText()) > maxResult }
	return slices.ContainsFunc(s.Steps, func(st *StepState) bool {
		return st.ByMember() && len(promptText(st.Message)) > maxResult ||
			st.Step.GetName() == checkTool && len(st.Tool.GetText()) > maxResult // told of work elsewhere
	}) ||
		slices.ContainsFunc(given(s), long)
}

// given are the parts of all that the run was given.
func given(s *State) []*a2av1.Part {
	parts := slices.Clip(s.Input.GetParts())
	for _, m := range s.History {
		parts = append(parts, m.GetParts()...)
	}
	return parts
}

// readResult returns a piece of a result.
func readResult(s *State, arguments string, look Look) *teamv1.ToolResult {
	args, err := readArguments(arguments)
	if err != nil {
		return toolError(`the arguments are not a JSON object; write {"id": "…", "offset": 0}`)
	}
	name, err := textOf(args, "id", true)
	if err != nil {
		return toolError(err.Error())
	}
	offset := 0
	if raw, ok := args["offset"]; ok && json.Unmarshal(raw, &offset) != nil {
		return toolError("argument offset must be a whole number, got " + jsonKind(raw))
	}
	text, ok := resultNamed(s, name, look)
	switch {
	case !ok:
		return toolError(fmt.Sprintf("there is no result %q", excerpt.Quote(name)))
	case offset < 0 || offset >= len(text):
		return toolError(fmt.Sprintf("offset %d is out of range; the result has %d bytes", offset, len(text)))
	}
	return toolText(pieceOf(text, offset))
}

// resultNamed finds the text of a result: of a member, also of one that works
// elsewhere, or among what was given.
func resultNamed(s *State, name string, look Look) (string, bool) {
	for _, st := range s.Steps {
		if !st.ByMember() || st.Message == nil || ticket(s, st) != name && st.Step.GetId() != name {
			continue
		}
		if st.Step.GetDetached() {
			st = asEnded(st, look.Detached(st))
		}
		return promptText(st.Message), st.Message != nil
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
	piece := excerpt.UpTo(text[offset:], maxResult)
	if end := offset + len(piece); end < len(text) {
		return fmt.Sprintf("%s\n\n[bytes %d to %d of %d; read on from offset %d]", piece, offset, end, len(text), end)
	}
	return piece
}
