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
	f := flag.Lookup("rapid.checks")
	before := f.Value.String()
	if Default(f.Name, strconv.Itoa(max(n/Stride(), 1))) {
		t.Cleanup(func() { _ = f.Value.Set(before) })
	}
}

// Default gives a flag a value if the command line gives it none, and reports whether it did.
func Default(name, value string) bool {
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return !set && flag.Lookup(name).Value.Set(value) == nil
}
