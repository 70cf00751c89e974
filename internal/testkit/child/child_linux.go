package child

import "syscall"

// dieWithParent has the child killed with its parent, unless as says which signal it gets then.
func dieWithParent(as *syscall.SysProcAttr) {
	if as.Pdeathsig == 0 {
		as.Pdeathsig = syscall.SIGKILL
	}
}
