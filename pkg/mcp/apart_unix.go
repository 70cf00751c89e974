//go:build unix

package mcp

import (
	"os/exec"
	"syscall"
)

// apart puts the program into its own process group, so that signals of the terminal do not reach
// it. It is stopped by this process, after the calls in progress.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// terminate asks the program and all processes of its group to exit.
func terminate(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // fails if none is left

// kill kills the program and all processes of its group.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // fails if none is left
