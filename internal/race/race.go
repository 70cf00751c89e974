// Package race tells tests whether the race detector is on. It makes a program about
// ten times as slow and takes memory of its own, so tests that repeat themselves over
// bindings, events or seeds do a part of it with the race detector. The step "tests
// without the race detector" of .ci/run does all of it.
package race

// Stride is the step by which a test with very many cases goes through them: 1, or 5 with
// the race detector, which then runs every fifth case.
func Stride() int {
	if Enabled {
		return 5
	}
	return 1
}
