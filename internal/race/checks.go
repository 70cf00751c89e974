package race

import (
	"flag"
	"strconv"
	"testing"
)

// Checks sets how many checks rapid makes until the test ends, a fifth of them with the
// race detector; -rapid.checks sets another number for all tests.
// It is for tests that are not parallel, since the number is that of the process.
func Checks(t testing.TB, n int) {
	t.Helper()
	n = max(n/Stride(), 1)
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "rapid.checks" })
	if set {
		return
	}
	f := flag.Lookup("rapid.checks")
	before := f.Value.String()
	if err := f.Value.Set(strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(before) })
}
