//go:build !linux

package pgtest

import "syscall"

// attributes does nothing: only Linux can end a child together with its parent.
func attributes(*account) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// unprivileged returns nil: the tests must not run as root.
func unprivileged() (*account, error) { return nil, nil }
