//go:build linux

package durable

import (
	"fmt"
	"os"
	"regexp"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

var syncs = regexp.MustCompile(`(?m)^\d+ +(fsync|fdatasync)\(\d+`)

// TestSync_P3 counts the syncs of a database while messages are sent one after
// the other: each acknowledgement has waited for at least one. Whether the disk
// does what a sync asks for cannot be seen here.
func TestSync_P3(t *testing.T) {
	const acks = 20
	sends := func(c *crash) {
		for n := range acks {
			c.send(fmt.Sprintf("m%d", n))
		}
	}
	t.Run("P3 sqlite", func(t *testing.T) {
		c := newCrash(t, stores[0], 0)
		if err := c.start(""); err != nil {
			t.Fatal(err)
		}
		tracer, file := trace(t, c.now, "-e", "trace=fsync,fdatasync")
		sends(c)
		tracer.end(syscall.SIGTERM)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := len(syncs.FindAll(b, -1))
		t.Logf("%d syncs for %d acknowledgements one after the other", n, acks)
		if n < acks {
			t.Errorf("%d syncs for %d acknowledgements", n, acks)
		}
	})
	t.Run("P3 postgres", func(t *testing.T) {
		c := newCrash(t, stores[1], 0)
		if err := c.start(""); err != nil {
			t.Fatal(err)
		}
		before := walSyncs(t, c.store)
		sends(c)
		c.now.end(syscall.SIGTERM) // its sessions report what they did when they end
		n := walSyncs(t, c.store) - before
		t.Logf("%d syncs for %d acknowledgements one after the other", n, acks)
		if n < acks {
			t.Errorf("%d syncs for %d acknowledgements", n, acks)
		}
	})
}

// walSyncs is how often a PostgreSQL has synced its log.
func walSyncs(t *testing.T, url string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), "SELECT wal_sync FROM pg_stat_wal").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
