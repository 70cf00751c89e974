package pgtest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// process is a child that dies with this process.
type process struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
}

// spawn starts a child. The signal on the parent's death is tied to the thread
// that forked, so that thread stays until the child is gone.
func spawn(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, gone: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.gone)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
	}()
	return p, <-started
}

// end sends a signal and waits until the child is gone.
func (p *process) end(signal syscall.Signal) {
	_ = p.cmd.Process.Signal(signal) // it may have ended
	<-p.gone
}
