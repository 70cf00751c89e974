// Package race tells tests whether the race detector is enabled. It makes a program about ten times
// slower and larger, so a test of a size or a duration needs to know.
package race
