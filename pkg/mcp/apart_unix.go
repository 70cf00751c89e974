//go:build unix

package mcp

import (
	"os/exec"
	"syscall"
)

// apart keeps signals of the terminal from the program: it ends when this process
// ends it, after the calls that are under way.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
