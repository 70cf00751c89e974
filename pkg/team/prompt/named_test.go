package prompt_test

import (
	"testing"

	"github.com/agentteams/team-server/pkg/team/prompt"
)

func TestNamed(t *testing.T) {
	t.Parallel()
	names := []string{"fact-checker", "writer", "Writer2", "a_b", "a-b"}
	for said, want := range map[string]string{
		"writer": "writer", "Writer": "writer", ` "WRITER" `: "writer", "writer2": "Writer2", "Fact Checker": "fact-checker", "fact_checker": "fact-checker",
		"`factchecker`": "fact-checker", "“writer”": "writer", "a_b": "a_b", "a-b": "a-b",
		"ab": "", "A-B": "", "writers": "", "": "", "-": "",
	} {
		if got, ok := prompt.Named(said, names); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", said, got, ok, want)
		}
	}
}
