//go:build !linux

package child

import "syscall"

// dieWithParent does nothing: only Linux can end a child together with its parent.
func dieWithParent(*syscall.SysProcAttr) {}
