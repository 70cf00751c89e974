package remote

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// partsOf reads the parts of a message.
func partsOf(t *testing.T, parts string) []*a2av1.Part {
	t.Helper()
	m := &a2av1.Message{}
	if err := protojson.Unmarshal([]byte(`{"parts":`+parts+`}`), m); err != nil {
		t.Fatal(err)
	}
	return m.GetParts()
}

// Questions as agents of others ask them: people see a text and the options.
func TestExplained(t *testing.T) {
	for name, tt := range map[string]struct {
		parts, text string
		options     []any
	}{
		"a text":                       {`[{"text":"Which city?"}]`, "Which city?", nil},
		"a value":                      {`[{"data":{"id":"i1","value":"Which city?"}}]`, "Which city?", nil},
		"a question within a value":    {`[{"data":{"id":"i1","value":{"question":"Send?","options":["yes","no"]}}}]`, "Send?", []any{"yes", "no"}},
		"an empty text":                {`[{"text":" "},{"data":{"prompt":"Go on?"}}]`, " \nGo on?", nil},
		"a text with data":             {`[{"text":"Agent requires input"},{"data":{"interrupts":[{"interruptId":"i1","reason":"Pay?"}]}}]`, "Agent requires input\nPay?", nil},
		"a text that has the question": {`[{"text":"Input:\n- Pay?"},{"data":{"interrupts":[{"interruptId":"i1","reason":"Pay?"}]}}]`, "Input:\n- Pay?", nil},
		"a question deep in data":      {`[{"text":"Input is required."},{"data":{"suspendPayload":{"toolName":"ask","suspendPayload":{"question":"Which city?"},"args":{}}}}]`, "Input is required.\nWhich city?", nil},
		"options as objects":           {`[{"data":{"title":"Size","choices":[{"label":"Small","value":"s"},{"label":"Large"},7]}}]`, "Size", []any{"s", "Large"}},
		"a schema of a value":          {`[{"data":{"message":"Which?","schema":{"enum":["a","b"]}}}]`, "Which?", []any{"a", "b"}},
		"a schema of an object":        {`[{"data":{"message":"Which?","schema":{"properties":{"x":{"enum":["a","b"]}}}}}]`, "Which?", nil},
		"data without a question":      {`[{"data":{"n":7}}]`, `{"n":7}`, nil},
		"options in our form":          {`[{"text":"Really?"},{"data":{"options":["yes","no"]}}]`, "Really?", []any{"yes", "no"}},
		"several questions in data":    {`[{"data":{"question":"One?"}},{"data":{"question":"Two?"}}]`, "One?\nTwo?", nil},
		"data that is a text":          {`[{"data":"Which city?"}]`, `"Which city?"`, nil},
		"nothing that could be a text": {`[]`, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := explained(partsOf(t, tt.parts))
			if text := agent.Text(&a2av1.Message{Parts: got}); text != tt.text {
				t.Errorf("text %q, want %q", text, tt.text)
			}
			var options []any
			for _, p := range got {
				if isOptions(p) {
					options = append(options, p.GetData().GetStructValue().GetFields()["options"].GetListValue().AsSlice()...)
				}
			}
			if diff := cmp.Diff(tt.options, options); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An answer to a question with data may be data, which people write as JSON.
func TestAsData(t *testing.T) {
	const withData, answer = `[{"text":"Pay?"},{"data":{"interrupts":[{"interruptId":"i1"}]}}]`, `{"interruptResponse":{"interruptId":"i1","response":"yes"}}`
	for name, tt := range map[string]struct {
		question, answer string
		data             bool
	}{
		"JSON":                         {withData, answer, true},
		"JSON on several lines":        {withData, "\n[\n1 ]\n", true},
		"a text":                       {withData, "yes", false},
		"a number":                     {withData, "7", false},
		"half of an object":            {withData, `{"a":`, false},
		"JSON for a question of words": {`[{"text":"Pay?"}]`, answer, false},
		"JSON for one of options":      {`[{"text":"Pay?"},{"data":{"options":["yes"]}}]`, answer, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := asData(partsOf(t, tt.question), agent.TextParts(tt.answer))
			if (len(got) == 1 && got[0].GetData() != nil) != tt.data || !tt.data && got[0].GetText() != tt.answer {
				t.Error(got)
			}
		})
	}
}
