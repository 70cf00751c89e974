package pgtest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// process is a child process that dies with this process.
type process struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has exited
}

// spawn starts a child. The signal on the death of the parent is sent when the thread that forked
// ends, so that thread is kept until the child has exited.
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
			_ = cmd.Wait() // the log shows how it ended
		}
	}()
	return p, <-started
}

// end sends a signal and waits until the child has exited.
func (p *process) end(signal syscall.Signal) {
	_ = p.cmd.Process.Signal(signal) // it may have exited
	<-p.gone
}
