// Package race tells tests whether the race detector is enabled. The race detector makes
// a program about ten times slower and needs memory, so tests that repeat the same
// checks for many bindings, events or seeds run only a part of them with it. make night
// runs all of them.
package race

import (
	"hash/fnv"
	"testing"
)

// Stride returns the step with which a test with many cases iterates over them: 1, or 5 with the
// race detector.
func Stride() int {
	if Enabled {
		return 5
	}
	return 1
}

// Sample returns the cases to test: all of them, or with the race detector a single one. The name
// of the test selects it, so that different tests cover different cases.
func Sample[T any](t testing.TB, cases []T) []T {
	if !Enabled {
		return cases
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name()))
	i := int(h.Sum32() % uint32(len(cases))) //nolint:gosec // a handful
	return cases[i : i+1]
}
