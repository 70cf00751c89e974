//go:build linux

package durable

import (
	"syscall"
	"testing"
)

// TestLoad is the harness without a kill, on a server that keeps all in memory.
func TestLoad(t *testing.T) {
	const acks = 3000
	c := newCrash(t, database{name: "memory", url: func(testing.TB) string { return "memory:" }}, seed(t))
	l := startLoad(t.Context(), c.history, c.front, c.seed)
	defer l.abandon()
	if err := c.start(""); err != nil {
		t.Fatal(err)
	}
	if _, err := c.await(plan{acks: acks}, l); err != nil {
		t.Fatal(c.giveUp(err))
	}
	if err := l.finish(); err != nil {
		t.Fatal(c.giveUp(err))
	}
	if s := c.now.end(syscall.SIGTERM); s.ExitStatus() != 0 {
		t.Errorf("after SIGTERM the server ended with %v\n%s", s, c.now.tail())
	}
	c.stopped("the end")
}
