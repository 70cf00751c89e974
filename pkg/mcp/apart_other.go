//go:build !unix

package mcp

import "os/exec"

// apart does nothing: there are no process groups.
func apart(*exec.Cmd) {}
