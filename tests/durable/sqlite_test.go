//go:build linux

package durable

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/tests/rig"
)

// TestSQLite_SecondProcess starts a second server on the file of the first.
func TestSQLite_SecondProcess(t *testing.T) {
	c := newCrash(t, stores[0], 0)
	if err := c.start(""); err != nil {
		t.Fatal(err)
	}
	second, err := c.command.start()
	if err == nil {
		second.end(syscall.SIGKILL)
		t.Fatal("a second process serves the same file")
	}
	var early died
	if !errors.As(err, &early) || early.ExitStatus() == 0 || !strings.Contains(err.Error(), "in use by another process") || !strings.Contains(err.Error(), "postgres://") {
		t.Fatalf("the second process: %v", err)
	}
	c.send("m1")
	c.now.end(syscall.SIGKILL)
	if err := c.start(""); err != nil {
		t.Fatalf("after the first was killed: %v", err)
	}
	c.finished("m1")
}

// direct calls the server that runs, as the first principal over REST, once.
func (c *crash) direct() rig.Client {
	c.Helper()
	e, err := c.front.await(c.Context(), nil)
	if err != nil {
		c.Fatal(err)
	}
	return e.clients[0][1]
}

// send sends a message to flow once; its task is acknowledged.
func (c *crash) send(message string) {
	c.Helper()
	if err := c.try(message); err != nil {
		c.Fatal(err)
	}
}

func (c *crash) try(message string) error {
	req := rig.Text("flow", message, "T"+message)
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	ctx, stop := context.WithTimeout(c.Context(), patience)
	defer stop()
	resp, err := c.direct().Send(ctx, req)
	if err != nil {
		return err
	}
	c.history.add(entry{Op: opTask, Message: message, Task: resp.GetTask().GetId()})
	return nil
}

// task is the task that was acknowledged for a message.
func (c *crash) task(message string) string {
	all, _ := c.history.all()
	for _, e := range all {
		if e.Op == opTask && e.Message == message {
			return e.Task
		}
	}
	c.Fatalf("message %s was not acknowledged", message)
	return ""
}

// finished waits until the task of a message has its answer.
func (c *crash) finished(message string) {
	c.Helper()
	var t *a2av1.Task
	await(c, "the end of the task of "+message, func() bool {
		var err error
		if t, err = c.direct().Get(c.Context(), &a2av1.GetTaskRequest{Id: c.task(message)}); err != nil {
			c.Fatalf("the task of %s: %v", message, err)
		}
		return state(t.GetStatus().GetState()).ended()
	})
	if got := result(t); t.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || got != flow("T"+message) {
		c.Errorf("the task of %s: %v with %q", message, t.GetStatus(), got)
	}
}

// everything waits for all tasks that were acknowledged.
func (c *crash) everything() (n int) {
	c.Helper()
	all, _ := c.history.all()
	for _, e := range all {
		if e.Op == opTask {
			c.finished(e.Message)
			n++
		}
	}
	return n
}

// TestSQLite_P13_DiskFull fills the disk of the store: what is written is refused, what
// is there can be read, and when there is room again writes are taken, all of it
// by the same process.
func TestSQLite_P13_DiskFull(t *testing.T) {
	c := newCrash(t, stores[0], 0)
	dir := t.TempDir()
	c.store = "sqlite:" + filepath.Join(dir, "team.db")
	c.prefix = privateDisk(t, dir, "8m")
	if err := c.start(""); err != nil {
		t.Fatal(err)
	}
	disk := fmt.Sprintf("/proc/%d/root%s", c.now.cmd.Process.Pid, dir)
	c.send("before")
	c.finished("before")
	fill(t, filepath.Join(disk, "filler"))
	refused := c.refusal()
	if refused.Code != "Unavailable" || refused.HTTP != http.StatusServiceUnavailable {
		t.Fatalf("on a full disk a send is answered with %+v", refused)
	}
	c.finished("before")
	if _, err := c.direct().List(t.Context(), &a2av1.ListTasksRequest{}); err != nil {
		t.Errorf("on a full disk tasks are not listed: %v", err)
	}
	c.retryAfter()
	if err := os.Remove(filepath.Join(disk, "filler")); err != nil {
		t.Fatal(err)
	}
	there := time.Now()
	await(t, "writes are taken", func() bool { return c.try("after") == nil })
	if took := time.Since(there); took > 5*time.Second {
		t.Errorf("writes were taken %v after there was room", took)
	}
	n := c.everything()
	t.Logf("refused with %v; %d tasks that were acknowledged are there; writes again after %v", refused, n, time.Since(there).Round(time.Millisecond))
	if s := c.now.end(syscall.SIGTERM); s.ExitStatus() != 0 {
		t.Errorf("the server ended with %v\n%s", s, c.now.tail())
	}
}

// privateDisk is what runs a program that sees a file system of its own, of a
// size, in place of a folder.
func privateDisk(t *testing.T, dir, size string) []string {
	t.Helper()
	prefix := []string{"unshare", "--mount", "--propagation=private"}
	if os.Geteuid() != 0 {
		prefix = []string{"unshare", "--user", "--map-root-user", "--mount", "--propagation=private"}
	}
	if _, err := exec.LookPath(prefix[0]); err != nil {
		t.Skip("SKIP-MISSING-TOOL: no unshare: install the package util-linux")
	}
	prefix = append(prefix, "sh", "-c", fmt.Sprintf("mount -t tmpfs -o size=%s tmpfs %q && exec \"$0\" \"$@\"", size, dir))
	if out, err := exec.CommandContext(t.Context(), prefix[0], append(prefix[1:len(prefix):len(prefix)], "true")...).CombinedOutput(); err != nil {
		t.Skipf("NOT POSSIBLE HERE: a disk of its own for the server needs a mount namespace: %v: %s", err, out)
	}
	return prefix
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 4 << 10, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// refusal sends until a send is refused: what is left of the store's own files
// takes a few.
func (c *crash) refusal() *rig.Error {
	c.Helper()
	for n := range 500 {
		if err := c.try(fmt.Sprintf("full-%d", n)); err != nil {
			return rig.Fault(err)
		}
	}
	c.Fatal("a full disk takes everything")
	return nil
}

// retryAfter looks for the header that says when to try again.
func (c *crash) retryAfter() {
	c.Helper()
	b, err := wire.Marshal(rig.Text("flow", "header", "T"))
	if err != nil {
		c.Fatal(err)
	}
	as := c.now.target.As(principals[0][0], principals[0][1])
	a, err := as.Do(c.Context(), http.MethodPost, "/message:send", b, map[string]string{"Content-Type": wire.TypeA2A})
	if err != nil {
		c.Fatal(err)
	}
	body, _ := a.Body()
	if s, err := strconv.Atoi(a.Header.Get("Retry-After")); a.Status != http.StatusServiceUnavailable || err != nil || s < 1 {
		c.Errorf("status %d with Retry-After %q: %s", a.Status, a.Header.Get("Retry-After"), body)
	}
}

// trace attaches strace to the server and returns when it is. What it writes goes
// to the file.
func trace(t *testing.T, r *replica, args ...string) (p *process, file string) {
	t.Helper()
	path, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("SKIP-MISSING-TOOL: no strace: install the package strace")
	}
	file = filepath.Join(t.ArtifactDir(), "strace.txt")
	cmd := exec.CommandContext(context.Background(), path, append([]string{"-f", "-o", file, "-p", strconv.Itoa(r.cmd.Process.Pid)}, args...)...)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = in
	p, err = spawn(cmd)
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(out)
	line, _ := said.ReadString('\n')
	if !strings.Contains(line, " attached") {
		p.end(syscall.SIGKILL)
		t.Skipf("NOT POSSIBLE HERE: strace cannot attach: %s", line)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		defer out.Close()
		_, _ = io.Copy(io.Discard, said)
	}()
	t.Cleanup(func() {
		p.end(syscall.SIGTERM)
		<-drained
	})
	return p, file
}

// TestSQLite_P14_SyncError has the k-th sync of the log fail, once: from then on
// nothing is acknowledged, the process ends with a message, and everything that
// was acknowledged is there after a restart. The tracer counts a thread's syncs.
func TestSQLite_P14_SyncError(t *testing.T) {
	last := int(number(t, syncsVariable, 10/uint64(sample.Stride())))
	tasks := 0
	for k := 1; k <= last; k++ {
		tasks += syncError(t, "-wal", k)
	}
	t.Logf("sync 1 to %d failed: %d tasks were acknowledged before, and all of them are there", last, tasks)
}

// TestSQLite_P14_CheckpointSyncError has the sync fail with which SQLite, every now
// and then, moves the log into the file. It does not tell its caller by itself.
func TestSQLite_P14_CheckpointSyncError(t *testing.T) {
	t.Logf("%d tasks were acknowledged before, and all of them are there", syncError(t, "", 1))
}

// syncError has a sync of one of the store's files fail.
func syncError(t *testing.T, file string, k int) (acknowledged int) {
	t.Helper()
	c := newCrash(t, stores[0], 0)
	if err := c.start(""); err != nil {
		t.Fatal(err)
	}
	_, path, _ := strings.Cut(c.store, ":")
	tracer, said := trace(t, c.now, "-y", "-ttt", "-P", path+file, "-e", "trace=fsync,fdatasync", "-e", fmt.Sprintf("inject=fsync,fdatasync:error=EIO:when=%d", k))
	late := c.untilRefused()
	if s := c.now.wait(t); s.ExitStatus() == 0 {
		t.Errorf("sync %d: the server ended with %v\n%s", k, s, c.now.tail())
	}
	failed, call := injected(t, tracer, said)
	if n := len(late); n > 0 && late[n-1].After(failed) {
		t.Errorf("sync %d: a send that began %v after it had failed was acknowledged: %s", k, late[n-1].Sub(failed), call)
	}
	if took := time.Since(failed); took > time.Second+slack {
		t.Errorf("sync %d: the server ended %v after it had failed", k, took)
	}
	if said := c.now.tail(); !strings.Contains(said, "the store failed") {
		t.Errorf("sync %d: the server does not say why it ends:\n%s", k, said)
	}
	c.front.gone()
	if err := c.start(""); err != nil {
		t.Fatal(err)
	}
	return c.everything()
}

// untilRefused sends until a send is not acknowledged; it returns when those
// began that were.
func (c *crash) untilRefused() (began []time.Time) {
	c.Helper()
	for n := range 1000 {
		at := time.Now()
		if err := c.try(fmt.Sprintf("m%d", n)); err != nil {
			return began
		}
		began = append(began, at)
	}
	c.Fatal("everything is acknowledged although no sync works")
	return nil
}

var injection = regexp.MustCompile(`(?m)^\d+ +(\d+)\.(\d+) (.*\(INJECTED\))`)

// injected is when the first sync failed, and which.
func injected(t *testing.T, tracer *process, file string) (at time.Time, call string) {
	t.Helper()
	tracer.wait(t) // it ends with what it traces
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := injection.FindSubmatch(b)
	if m == nil {
		t.Fatalf("no sync failed:\n%s", b)
	}
	s, _ := strconv.ParseInt(string(m[1]), 10, 64)
	us, _ := strconv.ParseInt(string(m[2]), 10, 64)
	return time.UnixMicro(s*1e6 + us), string(m[3])
}
