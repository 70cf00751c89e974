package expr

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/agentteams/team-server/pkg/agent"
)

// MissingData is the error of a condition that has no value because of an answer: the answer lacks
// data that the condition reads, or has it in a form that the condition cannot use.
type MissingData struct {
	// Path is the part of the condition that reads the data, such as critic.data.score.
	Path string
	// ID is the member or the step that has answered.
	ID string
	// Text is the text of its answer.
	Text string
	// Found is the data at the path; nil if there is none.
	Found any
}

// maxAnswer is how much of an answer the error quotes, in characters.
const maxAnswer = 200

// Error quotes the beginning of the answer and says how to correct the condition or the answer.
func (e *MissingData) Error() string {
	what := "has no such data"
	if e.Found != nil {
		found, _ := json.Marshal(e.Found) // cannot fail for what was decoded
		what = fmt.Sprintf("has %s there, of a type that the condition cannot use", agent.Quote(string(found)))
	}
	answer := []rune(e.Text)
	if len(answer) > maxAnswer {
		answer = append(answer[:maxAnswer:maxAnswer], '…')
	}
	return fmt.Sprintf("it reads %s, but the answer of %q %s: %q; have it answer with JSON that has %s (output_schema sees to that), or test for it with has(%s)",
		e.Path, e.ID, what, string(answer), e.Path, e.Path)
}

// missing returns the data that keeps the expression from having a value; nil if what it lacks is no
// data of an answer. Data is not missed while another member or step that the expression reads has not
// answered, or if the expression itself tests for data of the answer.
func (e *Expr) missing(v Values) *MissingData {
	var missing, unusable *MissingData
	for _, r := range e.reads {
		result, field := r.result(v)
		switch {
		case r.of == "":
		case !answered(result):
			return nil
		case len(field) == 0 || field[0] != "data" || e.tests(r.of):
		default:
			text, _ := result["text"].(string)
			found := &MissingData{Path: r.text, ID: r.of, Text: text, Found: at(result, field)}
			if found.Found == nil && missing == nil {
				missing = found
			}
			unusable = found
		}
	}
	if missing == nil {
		return unusable
	}
	return missing
}

// result returns the result that r reads, and the keys that it reads of it.
func (r *read) result(v Values) (result map[string]any, field []string) {
	holder, _ := v(r.root).(map[string]any)
	if r.of == "" || r.of == r.root {
		return holder, r.keys
	}
	result, _ = holder[r.of].(map[string]any)
	return result, r.keys[1:]
}

// answered reports whether a result is an answer, which may be empty.
func answered(result map[string]any) bool {
	return result["outcome"] == "succeeded" || result["outcome"] == "empty"
}

// tests reports whether the expression tests for data of the result of a member or step.
func (e *Expr) tests(id string) bool {
	return slices.ContainsFunc(e.reads, func(r read) bool { return r.test && r.of == id })
}

// at returns the value below v with these keys; nil if there is none.
func at(v any, keys []string) any {
	for _, key := range keys {
		switch of := v.(type) {
		case map[string]any:
			v = of[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(of) {
				return nil
			}
			v = of[i]
		default:
			return nil
		}
	}
	return v
}
