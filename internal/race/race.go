// Package race tells tests whether the race detector is on. It makes a program about
// ten times as slow and takes memory of its own, so tests that repeat themselves over
// bindings, events or seeds do a part of it with the race detector. The step "tests
// without the race detector" of .ci/run does all of it.
package race

// Stride is how many cases a test of very many goes on by: 1, or with the race detector
// 5, so that it runs every fifth.
func Stride() int {
	if Enabled {
		return 5
	}
	return 1
}
