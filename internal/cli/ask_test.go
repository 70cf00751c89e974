package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/cli/console"
)

// TestAnswersOfATerminal: answers of flags come first, then those that a person types; the end of the input, a
// command without a terminal and, for a run on a running server, an empty line answer nothing.
func TestAnswersOfATerminal(t *testing.T) {
	for name, c := range map[string]struct {
		terminal, json bool
		server         string
		typed          string
		want           []string
	}{
		"a terminal":     {true, false, "", "green\n blue \nlast", []string{"red", "green", "blue", "last"}},
		"an empty line":  {true, false, "", "\ngreen\n", []string{"red", "green"}},
		"answered later": {true, false, "http://127.0.0.1", "\ngreen\n", []string{"red"}},
		"no terminal":    {false, false, "", "green\n", []string{"red"}},
		"JSON is wanted": {true, true, "", "green\n", []string{"red"}},
	} {
		var talk bytes.Buffer
		a := &answers{given: []string{"red"}, shell: &Shell{Console: console.Console{In: strings.NewReader(c.typed), Talk: &talk, Terminal: c.terminal, JSON: c.json}, Connection: console.Connection{Server: c.server}}}
		var got []string
		for text, ok := a.next(t.Context()); ok; text, ok = a.next(t.Context()) {
			got = append(got, text)
		}
		if strings.Join(got, ",") != strings.Join(c.want, ",") || (talk.Len() > 0) != (c.terminal && !c.json) {
			t.Errorf("%s: %q, said %q", name, got, talk.String())
		}
	}
}
