// Package verdict parses the answers of judges.
package verdict

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Tool is the name of the tool that a model calls to give its verdict.
const Tool = "judge"

// Spec describes Tool to the model.
var Spec = agent.ToolSpec{
	Name:        Tool,
	Description: "Gives the verdict on the result.",
	Parameters: []byte(`{"type":"object","properties":{` +
		`"score":{"type":"number","minimum":0,"maximum":1,"description":"How good the result is."},` +
		`"feedback":{"type":"string","description":"What is to be improved; empty: nothing."}},` +
		`"required":["score","feedback"],"additionalProperties":false}`),
}

// Scored reports whether v is a valid score, from 0 to 1. NaN is not.
func Scored(v float64) bool { return v >= 0 && v <= 1 }

// Number formats a score for people.
func Number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// maxFeedback is the maximum length of a judge's feedback, in bytes.
const maxFeedback = 4 << 10

// Of parses the answer of a judge: a call of Tool, the data of a message, a text with a JSON object
// {"score", "feedback"}, or a text that is a number. If it has no score from 0 to 1, Fault of the
// result says what is wrong.
func Of(r *teamv1.Reply) *teamv1.Verdict {
	if m := r.GetMessage(); m != nil {
		return messageVerdict(m)
	}
	for _, call := range r.GetTurn().GetToolCalls() {
		if call.GetName() == Tool {
			arguments := call.GetArguments()
			if inner, ok := prompt.Unwrap(arguments); ok {
				arguments = inner
			}
			return jsonVerdict([]byte(arguments))
		}
	}
	return messageVerdict(agent.NewMessage(r.GetTurn().GetText()))
}

// messageVerdict reads the last object with a score in a message, or a number that is all of its text.
func messageVerdict(m *a2av1.Message) *teamv1.Verdict {
	text := strings.TrimSpace(agent.Text(m))
	if score, err := strconv.ParseFloat(text, 64); err == nil {
		return scoreVerdict(score, "")
	}
	v := &teamv1.Verdict{Fault: fmt.Sprintf("%q is no score", agent.Quote(text))}
	for i, data := range agent.Values(m) {
		found := dataVerdict(data)
		if found.Fault == "" {
			return found
		}
		if i == 0 {
			v = found
		}
	}
	return v
}

func dataVerdict(data any) *teamv1.Verdict {
	if score, ok := data.(float64); ok {
		return scoreVerdict(score, "")
	}
	b, err := json.Marshal(data)
	if err != nil {
		return &teamv1.Verdict{Fault: "the data is no score"}
	}
	return jsonVerdict(b)
}

func jsonVerdict(b []byte) *teamv1.Verdict {
	var v struct{ Score, Feedback json.RawMessage }
	if json.Unmarshal(b, &v) != nil {
		return &teamv1.Verdict{Fault: fmt.Sprintf("%s is no JSON object with a score", agent.Quote(string(b)))}
	}
	feedback := string(v.Feedback)
	_ = json.Unmarshal(v.Feedback, &feedback) // if it is not a string, its JSON is the feedback
	score, err := strconv.ParseFloat(strings.Trim(string(v.Score), `"`), 64)
	if err != nil {
		return &teamv1.Verdict{Feedback: agent.Excerpt(feedback, maxFeedback), Fault: fmt.Sprintf("there is no score in %s", agent.Quote(string(b)))}
	}
	return scoreVerdict(score, feedback)
}

func scoreVerdict(score float64, feedback string) *teamv1.Verdict {
	v := &teamv1.Verdict{Feedback: agent.Excerpt(strings.TrimSpace(feedback), maxFeedback)}
	if !Scored(score) {
		v.Fault = "the score is " + Number(score) + ", which is not 0 to 1"
		return v
	}
	v.Score = &score
	return v
}
