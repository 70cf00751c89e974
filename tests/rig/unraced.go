//go:build !race

package rig

// Raced reports whether the race detector is on.
const Raced = false
