package cli

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/cli/console"
)

func TestAnswers_Interrupted(t *testing.T) {
	t.Parallel()
	in, typing := io.Pipe()
	defer typing.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &answers{shell: &Shell{Console: console.Console{In: in, Talk: &strings.Builder{}, Terminal: true}}}
	if text, ok := a.next(ctx); ok || text != "" {
		t.Errorf("the answer is %q, %v", text, ok)
	}
}

func TestProgram(t *testing.T) {
	t.Setenv("TEAM_SERVER", "http://127.0.0.1:8080")
	for server, want := range map[string]string{"": "team-server", "http://127.0.0.1:8080": "team-server", "http://127.0.0.1:9": "team-server --server http://127.0.0.1:9"} {
		if got := (&console.Connection{Server: server}).Program(); got != want {
			t.Errorf("%q: %q, want %q", server, got, want)
		}
	}
}

func TestCall_CommandsCanBePasted(t *testing.T) {
	for text, want := range map[string]string{
		"01a2-x~1.2": "01a2-x~1.2", "http://h:1/a%2Fb": "http://h:1/a%2Fb", "x; rm y": `'x; rm y'`, "$(z)": `'$(z)'`, "it's": `'it'\''s'`, "": "''",
	} {
		if got := console.Word(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
