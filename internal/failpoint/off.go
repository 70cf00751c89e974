//go:build !failpoints

// Package failpoint lets tests stop a process at a named place in the code.
// Without the build tag failpoints a place is nothing, not even its name.
package failpoint

// Hit marks a place. It does nothing.
func Hit(string) {}
