//go:build !linux

package pgtest

// memory returns "": only Linux has /dev/shm.
func memory() string { return "" }
