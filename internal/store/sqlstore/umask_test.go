//go:build unix

package sqlstore_test

import (
	"syscall"
	"testing"
)

// syscallUmask sets the mask of the process for the modes of new files, and returns a function that resets it.
func syscallUmask(t testing.TB, mask int) (reset func()) {
	t.Helper()
	before := syscall.Umask(mask)
	return func() { syscall.Umask(before) }
}
