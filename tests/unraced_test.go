//go:build !race

package tests

// raced: the race detector is on, which takes memory of its own.
const raced = false
