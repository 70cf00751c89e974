// Package sample reduces tests that repeat the same checks for many bindings, stores, events or
// seeds. By default they run a part of their cases, so that go test ./... takes minutes. With the
// environment variable TEAM_TESTS=all, which make night sets, they run all of them.
package sample

import (
	"hash/fnv"
	"os"
	"testing"
)

// All reports whether tests run all of their cases.
func All() bool { return os.Getenv("TEAM_TESTS") == "all" }

// Stride returns the step with which a test with many cases iterates over them: 5, or 1 if tests
// run all of their cases.
func Stride() int {
	if All() {
		return 1
	}
	return 5
}

// Of returns the cases to test: a single one, or all of them if tests run all of their cases. The
// name of the test selects the one, so that different tests cover different cases.
func Of[T any](t testing.TB, cases []T) []T {
	if All() {
		return cases
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name()))
	i := int(h.Sum32() % uint32(len(cases))) //nolint:gosec // a handful
	return cases[i : i+1]
}
