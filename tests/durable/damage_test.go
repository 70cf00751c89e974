//go:build linux

package durable

import (
	"errors"
	"fmt"
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
	"github.com/agentteams/team-server/tests/rig"
)

// sharedDisk is what runs programs that see a file system of a size in place of a
// folder, the same one each time, and where it is seen from outside.
func sharedDisk(t *testing.T, dir, size string) (prefix []string, outside string) {
	t.Helper()
	argv := privateDisk(t, dir, size)
	cmd := exec.CommandContext(t.Context(), argv[0], append(argv[1:len(argv):len(argv)], "sh", "-c", "echo mounted; exec sleep 600")...)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout = in
	holder, err := spawn(cmd)
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { holder.end(syscall.SIGKILL) })
	if n, err := out.Read(make([]byte, 100)); n == 0 {
		t.Fatalf("the disk is not mounted: %v", err)
	}
	pid := cmd.Process.Pid
	prefix = []string{"nsenter", "--target", fmt.Sprint(pid), "--mount"}
	if os.Geteuid() != 0 {
		prefix = append(prefix, "--user", "--preserve-credentials")
	}
	return append(prefix, "--"), fmt.Sprintf("/proc/%d/root%s", pid, dir)
}

// readiness is the status of /readyz.
func (c *crash) readiness() int {
	c.Helper()
	a, err := c.now.target.Do(c.Context(), http.MethodGet, "/readyz", nil, nil)
	if err != nil {
		c.Fatal(err)
	}
	_, _ = a.Body()
	return a.Status
}

// TestSQLite_P13_DiskFullAtStart starts a server while the disk of its store is full:
// what is there can be read, sends are refused, and when there is room again writes
// are taken and what was under way goes on, by the same process.
func TestSQLite_P13_DiskFullAtStart(t *testing.T) {
	for name, end := range map[string]syscall.Signal{"after a stop": syscall.SIGTERM, "after a crash": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			c := newCrash(t, stores[0], 0)
			dir := t.TempDir()
			c.store = "sqlite:" + filepath.Join(dir, "team.db")
			var disk string
			c.prefix, disk = sharedDisk(t, dir, "8m")
			if err := c.start(""); err != nil {
				t.Fatal(err)
			}
			c.send("before")
			c.finished("before")
			c.send("under-way")
			c.now.end(end)
			c.front.gone()
			fill(t, filepath.Join(disk, "filler"))
			if err := c.start(""); err != nil {
				t.Fatal(err)
			}
			c.finished("before")
			if l, err := c.direct().List(t.Context(), &a2av1.ListTasksRequest{}); err != nil || len(l.GetTasks()) != 2 {
				t.Errorf("on a full disk tasks are listed as %v, %v", l, err)
			}
			refused := c.refusal()
			if refused.Code != "Unavailable" || refused.Reason != "STORE_UNAVAILABLE" || refused.HTTP != http.StatusServiceUnavailable {
				t.Errorf("on a full disk a send is answered with %+v", refused)
			}
			if got := c.readiness(); got != http.StatusServiceUnavailable {
				t.Errorf("/readyz is %d", got)
			}
			if said := c.now.said(); strings.Count(said, "the disk is full") == 0 || strings.Count(said, "\n") > 12 {
				t.Errorf("the log says:\n%s", said)
			}
			if err := os.Remove(filepath.Join(disk, "filler")); err != nil {
				t.Fatal(err)
			}
			there := time.Now()
			await(t, "writes are taken", func() bool { return c.try("after") == nil })
			if took := time.Since(there); took > 5*time.Second {
				t.Errorf("writes were taken %v after there was room", took)
			}
			c.everything()
			if s := c.now.end(syscall.SIGTERM); s.ExitStatus() != 0 {
				t.Errorf("the server ended with %v\n%s", s, c.now.tail())
			}
		})
	}
}

// verdict is what became of a server on a damaged store.
type verdict struct {
	started  bool
	ready    int    // status of /readyz
	readable int    // tasks that were acknowledged and are shown
	unlisted int    // tasks that are not, and that the log does not name
	send     string // what a send was answered
	lines    int    // of the log
	said     string // its first line
}

func (v verdict) String() string {
	start := "does not start"
	if v.started {
		start = fmt.Sprintf("readyz %d, %d tasks readable, send: %s", v.ready, v.readable, v.send)
	}
	return fmt.Sprintf("%s; %d log lines: %.300s", start, v.lines, v.said)
}

// tasks is how many tasks a store holds before it is damaged.
const tasks = 6

// damaged is a store with tasks that have ended, to be damaged in copies.
type damaged struct {
	*crash
	files map[string][]byte // by what their names end with
	ids   []string
}

// newDamaged makes the store; a signal ends its server.
func newDamaged(t *testing.T, end syscall.Signal) *damaged {
	t.Helper()
	d := &damaged{crash: newCrash(t, stores[0], 0), files: map[string][]byte{}}
	if err := d.start(""); err != nil {
		t.Fatal(err)
	}
	for n := range tasks {
		d.send(fmt.Sprintf("m%d", n))
		d.finished(fmt.Sprintf("m%d", n))
		d.ids = append(d.ids, d.task(fmt.Sprintf("m%d", n)))
	}
	d.now.end(end)
	d.front.gone()
	_, path, _ := strings.Cut(d.store, ":")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(path + suffix)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		d.files[suffix] = b
	}
	return d
}

// flipped serves a copy in which a bit of a file is flipped.
func (d *damaged) flipped(t *testing.T, suffix string, at int, mask byte) (v verdict) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "team.db")
	for name, b := range d.files {
		b = append([]byte{}, b...)
		if name == suffix {
			b[at] ^= mask
		}
		if len(b) > 0 {
			if err := os.WriteFile(file+name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := *d.crash
	c.T, c.store, c.front, c.now = t, "sqlite:"+file, newFront(), nil
	r, err := c.command.start()
	var early died
	if errors.As(err, &early) {
		if early.ExitStatus() != 1 {
			t.Errorf("it ends with %v", early.WaitStatus)
		}
		v.said = strings.TrimSpace(early.text)
		v.lines = strings.Count(v.said, "\n") + 1
		return v
	}
	if err != nil {
		t.Fatal(err)
	}
	c.now, v.started = r, true
	defer c.front.gone()
	defer r.end(syscall.SIGKILL)
	if err := c.front.serve(r.target); err != nil {
		t.Fatal(err)
	}
	v.ready = c.readiness()
	for _, id := range d.ids {
		task, err := c.direct().Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
		if err == nil && state(task.GetStatus().GetState()).ended() {
			v.readable++
		} else if !strings.Contains(r.said(), id) {
			v.unlisted++
		}
	}
	v.send = c.sent()
	v.said = strings.TrimSpace(r.said())
	v.lines = strings.Count(v.said, "\n") + 1
	return v
}

// sent sends a message and says what became of its task.
func (c *crash) sent() string {
	req := rig.Text("flow", "new", "T")
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	resp, err := c.direct().Send(c.Context(), req)
	if err != nil {
		return rig.Fault(err).Reason
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); <-tick.C {
		t, err := c.direct().Get(c.Context(), &a2av1.GetTaskRequest{Id: resp.GetTask().GetId()})
		switch got := t.GetStatus().GetState(); {
		case err == nil && got == a2av1.TaskState_TASK_STATE_COMPLETED:
			return "completed"
		case err == nil && state(got).ended():
			return got.String()
		}
	}
	return "acknowledged, never run"
}

// judge says what is wrong with a verdict: a server that is ready has everything and
// runs what it takes, one that is not takes nothing and says what is missing, and
// one that does not start says why.
func (v verdict) judge() error {
	switch {
	case v.lines > 20:
		return fmt.Errorf("%d lines in the log", v.lines)
	case !v.started && !strings.Contains(v.said, "backup"):
		return errors.New("it does not say what to do")
	case !v.started:
		return nil
	case v.ready == http.StatusOK && (v.readable < tasks || v.send != "completed"):
		return errors.New("it is ready and does not do its work")
	case v.ready != http.StatusOK && v.send != "STORE_UNAVAILABLE":
		return errors.New("it is not ready and takes a send")
	case v.unlisted > 0:
		return fmt.Errorf("%d tasks are missing, and the log does not say which", v.unlisted)
	}
	return nil
}

// TestSQLite_P15_FlippedHeader flips bits of the header of the database's file.
func TestSQLite_P15_FlippedHeader(t *testing.T) {
	d := newDamaged(t, syscall.SIGTERM)
	for _, at := range []int{3, 16, 17, 18, 19, 20, 21, 24, 28, 31, 32, 35, 39, 43, 47, 51, 55, 59, 63, 67, 71, 80, 95, 99} {
		for _, mask := range []byte{1 << (at % 3)} {
			t.Run(fmt.Sprintf("byte %d ^ %d", at, mask), func(t *testing.T) {
				v := d.flipped(t, "", at, mask)
				t.Logf("| header byte %d, bit %d | %v |", at, at%3, v)
				if err := v.judge(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestSQLite_P15_FlippedLog flips bits of the write-ahead log that a crash left, before its last transaction. Damage in
// that looks like an end that the crash has torn.
func TestSQLite_P15_FlippedLog(t *testing.T) {
	d := newDamaged(t, syscall.SIGKILL)
	const header, frame = 32, 24 + 4096
	last := len(d.files["-wal"])/frame - 1
	for _, at := range []int{
		1, 7, 10, 14, 19, 22, 26,
		header + 3, header + 7, header + 9, header + 17, header + 24 + 100,
		header + last/2*frame + 24 + 2000, header + last/2*frame + 24 + 2003, header + (last-40)*frame + 4000,
	} {
		t.Run(fmt.Sprintf("byte %d", at), func(t *testing.T) {
			v := d.flipped(t, "-wal", at, 4)
			t.Logf("| log byte %d (frame %d of %d), bit 2 | %v |", at, (at-header)/frame, last, v)
			if err := v.judge(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSQLite_P14_SyncErrorAtStart has the k-th sync of a thread of the server fail,
// counted from its start with an empty store: no acknowledgement comes after one
// that failed, and what was acknowledged is there afterwards. Syncs of the folder do not
// count: SQLite ignores the error of one when it begins its log, and the store syncs the
// folder itself before it takes anything.
func TestSQLite_P14_SyncErrorAtStart(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("SKIP-MISSING-TOOL: no strace: install the package strace")
	}
	for k := 1; k <= 20; k += sample.Stride() {
		t.Run(fmt.Sprintf("sync %d", k), func(t *testing.T) {
			c := newCrash(t, stores[0], 0)
			file := filepath.Join(t.ArtifactDir(), "strace.txt")
			c.prefix = []string{strace, "-D", "-f", "-y", "-ttt", "-o", file, "-e", "trace=fsync,fdatasync", "-e", fmt.Sprintf("inject=fsync,fdatasync:error=EIO:when=%d", k)}
			err := c.start("")
			c.prefix = nil
			var early died
			outcome := ""
			switch {
			case errors.As(err, &early) && early.ExitStatus() == 1:
				outcome = "does not start: " + strings.TrimSpace(early.text)
			case err != nil:
				t.Fatal(err)
			default:
				late := c.untilRefused()
				s := c.now.wait(t)
				if s.ExitStatus() == 0 {
					t.Errorf("the server ended with %v\n%s", s, c.now.tail())
				}
				outcome = fmt.Sprintf("acknowledged %d, then ended with %d: %s", len(late), s.ExitStatus(), strings.TrimSpace(c.now.tail()))
				if failed := firstInjected(t, file, storeFile); !failed.IsZero() && len(late) > 0 && late[len(late)-1].After(failed) {
					t.Errorf("a send that began %v after the sync had failed was acknowledged", late[len(late)-1].Sub(failed))
				}
				c.front.gone()
			}
			if firstInjected(t, file, injection).IsZero() {
				t.Errorf("no sync failed: %s", outcome)
			}
			if err := c.start(""); err != nil {
				t.Fatal(err)
			}
			t.Logf("| sync %d | %.400s; after the restart all %d acknowledged tasks are there |", k, outcome, c.everything())
			if err := c.try("again"); err != nil {
				t.Error(err)
			}
		})
	}
}

// storeFile matches the injected errors of files of a store, as strace -y shows them.
var storeFile = regexp.MustCompile(`(?m)^\d+ +(\d+)\.(\d+) \w+\(\d+<[^>]*\.db(?:-wal|-journal)?>.*\(INJECTED\)`)

// firstInjected is when the first sync of those that match failed; zero: none did.
func firstInjected(t *testing.T, file string, match *regexp.Regexp) time.Time {
	t.Helper()
	var b []byte
	await(t, "what strace says", func() bool { // it writes the end after the program has ended
		b, _ = os.ReadFile(file)
		return strings.Contains(string(b), "+++ exited") || strings.Contains(string(b), "+++ killed")
	})
	m := match.FindSubmatch(b)
	if m == nil {
		return time.Time{}
	}
	s, _ := strconv.ParseInt(string(m[1]), 10, 64)
	us, _ := strconv.ParseInt(string(m[2]), 10, 64)
	return time.UnixMicro(s*1e6 + us)
}
