//go:build !unix

package mcp

import "os/exec"

// apart does nothing, because this system has no process groups.
func apart(*exec.Cmd) {}

// terminate kills the program, because this system has no signal that asks it to exit.
func terminate(cmd *exec.Cmd) { kill(cmd) }

// kill kills the program, but not what it has started.
func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // fails if it has exited
