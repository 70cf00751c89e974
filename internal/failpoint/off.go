//go:build !failpoints

// Package failpoint lets tests stop a process at a named place in the code.
// Without the build tag failpoints, Hit is empty and the names are not compiled in.
package failpoint

// Hit marks a place. It does nothing.
func Hit(string) {}
