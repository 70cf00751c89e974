package agent_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// What models write around the JSON that they were asked for.
func TestData(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"score": 9}`:                 `{"score":9}`,
		` 7 `:                          `7`,
		`"yes"`:                        `"yes"`,
		"```json\n{\"score\": 9}\n```": `{"score":9}`,
		"```\n0.8\n```":                `0.8`,
		"Here you are:\n```json\n{\"score\": 9}\n```\nAnything else?": `{"score":9}`,
		"<think>good, say {\"score\": 1}</think>\n{\"score\": 9}":     `{"score":9}`,
		"so {\"score\": 1} it is\n</think>\n{\"score\": 9}":           `{"score":9}`,
		`Verdict: {"score": 9, "hint": "write </think> there"}`:       `{"hint":"write </think> there","score":9}`,
		"<think>a</think>```json\n[1]\n```":                           `[1]`,
		`The verdict: {"score": 9}`:                                   `{"score":9}`,
		`{"score": 9} is my verdict.`:                                 `{"score":9}`,
		`First {"score": 3}, then {"score": 9}.`:                      `{"score":9}`,
		`{"score": 3} was wrong {"score": 9`:                          `{"score":3}`,
		`{"score": 9} as in [1] and {}`:                               `{"score":9}`,
		`use {name} and [text](url): {"score": 9}`:                    `{"score":9}`,
		`Both of [{"score": 1}, {"score": 9}] count`:                  `[{"score":1},{"score":9}]`,
		`{"a": "</think>", "score": 9}`:                               `{"a":"</think>","score":9}`,
		`He said "{" and {"score": 9}`:                                `{"score":9}`,
		`{"a": {"score": 9}, "b": `:                                   ``, // a part of what lacks its end
		`<think>{"score": 9}`:                                         ``, // thoughts alone
		"\ufeff{\"score\": 9}":                                        `{"score":9}`,
		"\ufeff[1]":                                                   `[1]`,
		"\n<thinking>{\"score\": 1}</thinking>{\"score\": 9}":         `{"score":9}`,
		"<think>a<think>{\"score\": 1}</think></think>{\"score\": 9}": `{"score":9}`,
		`The score is 9.`:                                             ``,
		`func() {} []`:                                                `{}`,
		``:                                                            ``,
	} {
		got := ""
		if data, ok := agent.Data(agent.NewMessage(text)); ok {
			b, err := json.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got = strings.ReplaceAll(got, `\u003c/think\u003e`, "</think>"); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestData_Part(t *testing.T) {
	t.Parallel()
	data, err := structpb.NewValue(map[string]any{"score": 9.0})
	if err != nil {
		t.Fatal(err)
	}
	m := &a2av1.Message{Parts: append(agent.TextParts(`{"score": 1}`), &a2av1.Part{Content: &a2av1.Part_Data{Data: data}})}
	if got, ok := agent.Data(m); !ok || !reflect.DeepEqual(got, map[string]any{"score": 9.0}) {
		t.Errorf("%v, %v", got, ok)
	}
}

// TestJSONKeepsItsDigits: JSON that is taken out of a text has the numbers of the text.
func TestJSONKeepsItsDigits(t *testing.T) {
	for _, text := range []string{`{"id":9007199254740993}`, "```json\n{\"id\":9007199254740993}\n```", `Here it is: {"id":9007199254740993}.`} {
		if got := agent.JSONIn(text); got != `{"id":9007199254740993}` {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// FuzzData: any text is read in time, and what is found is JSON.
func FuzzData(f *testing.F) {
	f.Add("a {\"b\": [1, {}]} c ```json\n{}\n```")
	f.Add(strings.Repeat("[", 5000) + "x")
	f.Add(strings.Repeat(`{"a":`, 500))
	f.Fuzz(func(t *testing.T, text string) {
		for _, v := range agent.Values(agent.NewMessage(text)) {
			if _, err := json.Marshal(v); err != nil {
				t.Fatal(err)
			}
		}
	})
}
