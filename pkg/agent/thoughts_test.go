package agent_test

import (
	"testing"

	"github.com/agentteams/team-server/pkg/agent"
)

// TestThoughtFilter: reasoning at the beginning of a text is not part of the answer, however the text is cut
// into pieces.
func TestThoughtFilter(t *testing.T) {
	for text, want := range map[string]string{
		"<think>\nlet me see\n</think>\n\nHello":     "Hello",
		"\n <think></think>Hello":                    "Hello",
		"<thinking>a < b</thinking>\n{\"a\": 1}":     `{"a": 1}`,
		"[THINK]x[/THINK]Hello":                      "Hello",
		"<think>a</think>\n<think>b</think>\n Hi":    "Hi",
		"\ufeff<think>a</think>b":                    "b",
		"\ufeff\n\n <think>a</think>b":               "b",
		"\ufeffb":                                    "b",
		"<think>a<think>b</think>c</think>d":         "d",
		"<think>\n<think>\na</think>\nb <c>":         "b <c>",
		"<think>a<think>b":                           "",
		"<think>a <think> tag</think>\n\nb":          "b",
		"<think>never ends":                          "",
		"<think>a</think>":                           "",
		"<think>a</think>\n":                         "",
		"Hello <think>no</think>":                    "Hello <think>no</think>",
		"<thin ice":                                  "<thin ice",
		"<think":                                     "<think",
		" \n":                                        " \n",
		"":                                           "",
		"  indented":                                 "  indented",
		"<th><td>":                                   "<th><td>",
		"<think>a</thinking>b</think>c":              "c",
		"<think>é 漢 </think>é 漢":                     "é 漢",
		"<think>a</think>Use </think> in a template": "Use </think> in a template",
	} {
		for size := 1; size <= max(1, len(text)); size++ {
			var f agent.ThoughtFilter
			got := ""
			for at := 0; at < len(text); at += size {
				got += f.Add(text[at:min(at+size, len(text))])
			}
			if got += f.End(); got != want {
				t.Errorf("%q in pieces of %d: %q, want %q", text, size, got, want)
			}
		}
	}
}

func TestAfterThoughts(t *testing.T) {
	for text, want := range map[string]string{
		"so it is 4.\n</think>\n\n4":        "4",
		"hm\n</think>":                      "",
		"Write </think> at the end":         "Write </think> at the end",
		"A line:\n</think> ends it":         "A line:\n</think> ends it",
		"See <think>\nx\n</think>\nin code": "See <think>\nx\n</think>\nin code",
		"hm\n  </think> \r\n4":              "4",
		"a </think> tag\n</think>\n4":       "4",
		"\ufeff<think>a</think>\n4":         "4",
		"plain":                             "plain",
	} {
		if got := agent.AfterThoughts(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
