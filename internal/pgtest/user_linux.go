package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// attributes run a child as a user and end it with this process: SIGQUIT lets
// the postmaster take its own children along.
func attributes(as *account) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if as != nil {
		a.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid}
	}
	return a
}

// unprivileged is who runs the server when root runs the tests, which
// PostgreSQL refuses; nil is nobody else.
func unprivileged() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("pgtest: user %s: %w", name, err)
		}
		return &account{uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("pgtest: root cannot run PostgreSQL, and there is no user postgres or nobody")
}
