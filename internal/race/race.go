// Package race tells tests whether the race detector is on. It makes a program about
// ten times as slow and takes memory of its own, so tests that repeat themselves over
// bindings, events or seeds do a part of it with the race detector. A part of make
// night does all of it.
package race

import (
	"hash/fnv"
	"testing"
)

// Stride is the step by which a test with very many cases goes through them: 1, or 5 with
// the race detector, which then runs every fifth case.
func Stride() int {
	if Enabled {
		return 5
	}
	return 1
}

// Sample returns the cases that a test does: all of them, or with the race detector one,
// chosen by the name of the test, so that every case is some test's.
func Sample[T any](t testing.TB, cases []T) []T {
	if !Enabled {
		return cases
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name()))
	i := int(h.Sum32() % uint32(len(cases))) //nolint:gosec // a handful
	return cases[i : i+1]
}
