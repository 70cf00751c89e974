//go:build race

package rig

// Raced reports whether the race detector is on. It makes processes slow and takes
// memory of its own, so tests that repeat themselves over all bindings or at large sizes
// run a part with it; .ci/run runs them whole without it.
const Raced = true
