//go:build !race

package main

// raced: the race detector is on, with which processes are slow.
const raced = false
