//go:build linux

package durable

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/tests/rig"
)

// rolesCommand is how servers with roles are started.
func rolesCommand(t *testing.T, store string) command {
	t.Helper()
	c := command{config: filepath.Join(t.TempDir(), "team.yaml"), store: store, dir: t.ArtifactDir()}
	if err := os.WriteFile(c.config, []byte(rig.RolesAgents+"server:\n"+rig.RolesServer+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRoles: what a front accepts is driven by workers, and callers do not notice it.
func TestRoles(t *testing.T) {
	t.Parallel()
	cmd := rolesCommand(t, pgtest.URL(t))
	rig.Roles(t, func(flags ...string) rig.Process {
		c := cmd
		c.args = append(flags, "--lease="+lease.String())
		s, err := c.start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.end(syscall.SIGKILL) })
		ready := "http=" + strings.TrimPrefix(s.target.HTTP, "http://") + " grpc=" + s.target.GRPC
		return rig.Process{Ready: ready, Log: s.said, Kill: func() { s.end(syscall.SIGKILL) }}
	})
}

// TestRoles_Store: a front and a worker need a store that servers share.
func TestRoles_Store(t *testing.T) {
	t.Parallel()
	c := rolesCommand(t, sqlite(t))
	for _, role := range []string{"front", "worker"} {
		c.args = []string{"--role=" + role}
		want := "--role: " + role + " needs a store that servers share; write server.store: postgres://"
		if _, err := c.start(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
