//go:build !linux

package db

import (
	"errors"
	"runtime"
)

// permissions reports whether files have permissions for other users.
const permissions = runtime.GOOS != "windows"

// diskOf returns errors.ErrUnsupported: free space is read on Linux only, and Inspect skips its check.
func diskOf(string) (free uint64, remote string, err error) { return 0, "", errors.ErrUnsupported }

// writable returns true: it is not known for this system.
func writable(string) bool { return true }
