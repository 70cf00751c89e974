//go:build !linux

package pgtest

import "syscall"

// attributes of a child: only Linux can tie its life to ours.
func attributes(*account) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// unprivileged is nobody else: run the tests as a user other than root.
func unprivileged() (*account, error) { return nil, nil }
