//go:build linux

package durable

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentteams/team-server/internal/testkit/pgtest"
)

// ownNetwork is set in a process that runs a test in a network of its own.
const ownNetwork = "TEAM_CRASH_OWN_NETWORK"

// inOwnNetwork runs a test again, by a process with a network of its own, and reports whether this is
// that process. Nothing leaves that network, and nothing of it outlives the process.
func inOwnNetwork(t *testing.T, args ...string) bool {
	t.Helper()
	if os.Getenv(ownNetwork) != "" {
		return true
	}
	unshare := []string{"--net"}
	if os.Geteuid() != 0 {
		unshare = []string{"--user", "--map-current-user", "--keep-caps", "--net"}
	}
	for _, tool := range []string{"ip", "unshare", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIP-MISSING-TOOL %s: install the packages iproute2 and util-linux", tool)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", append(unshare, "ip", "link", "add", "try", "type", "veth")...).CombinedOutput(); err != nil {
		t.Skipf("SKIP-MISSING-TOOL unshare: a network namespace is not permitted here (%v: %s)", err, strings.TrimSpace(string(out)))
	}
	pgtest.Program(t, "initdb")
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	again := append(unshare, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=55m")
	cmd := exec.CommandContext(t.Context(), "unshare", append(again, args...)...)
	cmd.Env = append(os.Environ(), ownNetwork+"=1", serverVariable+"="+path)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("in a network of its own: %v", err)
	}
	return false
}

// link is the network of one node: a namespace, connected to this process and the database by a link
// that can be cut.
type link struct {
	index  int
	holder *process // keeps the namespace
}

// newLink makes the network of the nth node, from 1.
func newLink(t *testing.T, index int) *link {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	holder, err := spawn(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { holder.end(syscall.SIGKILL) })
	l := &link{index, holder}
	l.run(t, "ip link add %s type veth peer name db netns %d", l.name(), holder.cmd.Process.Pid)
	l.run(t, "ip addr add %s/30 dev %s", l.database(), l.name())
	l.run(t, "ip link set %s up", l.name())
	l.inside(t, "ip link set lo up")
	l.inside(t, "ip addr add %s/30 dev db", l.node())
	l.inside(t, "ip link set db up")
	return l
}

func (l *link) name() string     { return "db" + strconv.Itoa(l.index) }
func (l *link) database() string { return fmt.Sprintf("10.77.%d.1", l.index) }
func (l *link) node() string     { return fmt.Sprintf("10.77.%d.2", l.index) }
func (l *link) space() string    { return fmt.Sprintf("/proc/%d/ns/net", l.holder.cmd.Process.Pid) }

// prefix is what runs a program in the network of the node.
func (l *link) prefix() []string { return []string{"nsenter", "--net=" + l.space(), "--"} }

// run runs a command here.
func (l *link) run(t *testing.T, format string, args ...any) {
	t.Helper()
	words := strings.Fields(fmt.Sprintf(format, args...))
	if out, err := exec.CommandContext(context.Background(), words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", words, err, out)
	}
}

// inside runs a command in the network of the node.
func (l *link) inside(t *testing.T, format string, args ...any) {
	t.Helper()
	l.run(t, strings.Join(l.prefix(), " ")+" "+format, args...)
}

// partition is a way to cut a node off from the database.
type partition struct {
	name      string
	cut, heal func(*testing.T, *link)
}

// partitions are all of them. Clients still reach the node.
var partitions = []partition{
	{
		"both ways",
		func(t *testing.T, l *link) { l.run(t, "ip link set %s down", l.name()) },
		func(t *testing.T, l *link) { l.run(t, "ip link set %s up", l.name()) },
	},
	{
		"its packets are lost",
		func(t *testing.T, l *link) { l.inside(t, "ip route add blackhole %s/32", l.database()) },
		func(t *testing.T, l *link) { l.inside(t, "ip route del blackhole %s/32", l.database()) },
	},
	{
		"the answers are lost",
		func(t *testing.T, l *link) { l.run(t, "ip route add blackhole %s/32", l.node()) },
		func(t *testing.T, l *link) { l.run(t, "ip route del blackhole %s/32", l.node()) },
	},
}

// dial connects to an address in the network of the node. A socket belongs to the namespace of the
// thread that has made it. The thread is not used for anything else.
func (l *link) dial(ctx context.Context, address string) (net.Conn, error) {
	type dialed struct {
		conn net.Conn
		err  error
	}
	done := make(chan dialed, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		space, err := os.Open(l.space())
		if err != nil {
			done <- dialed{err: err}
			return
		}
		defer space.Close()
		if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- dialed{err: err}
			return
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		done <- dialed{c, err}
	}()
	d := <-done
	return d.conn, d.err
}
