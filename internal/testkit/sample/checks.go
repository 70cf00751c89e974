package sample

import (
	"flag"
	"strconv"
	"testing"
)

// Checks sets the number of checks that rapid makes until the test ends: n if tests run all of
// their cases, else a fifth of it. The flag -rapid.checks takes precedence. Tests that call it must not be parallel,
// because the number applies to the whole process.
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
