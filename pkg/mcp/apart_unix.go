//go:build unix

package mcp

import (
	"os/exec"
	"syscall"
)

// apart puts the program into its own process group, so that signals of the terminal do not reach
// it. It is stopped by this process, after the calls in progress.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
