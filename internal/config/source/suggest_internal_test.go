package source

import (
	"strings"
	"testing"
)

// TestR_002_01_SuggestionsOfLongNames: looking for what was probably meant costs no more
// the longer a name is.
func TestR_002_01_SuggestionsOfLongNames(t *testing.T) {
	known := []string{"description", "instructions"}
	for _, suggest := range []func(string, []string) string{Suggest, SuggestAll} {
		if got := suggest("descripton", known); !strings.Contains(got, `did you mean "description"?`) {
			t.Error(got)
		}
		long := strings.Repeat("description", 1000)
		if got := suggest(long, known); !strings.HasPrefix(got, "known here: description") {
			t.Error(got)
		}
		if n := testing.AllocsPerRun(1, func() { suggest(long, known) }); n > 100 {
			t.Errorf("%v allocations for a name of %d bytes", n, len(long))
		}
	}
}
