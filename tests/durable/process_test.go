//go:build linux

package durable

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentteams/team-server/tests/rig"
)

// patience bounds every wait for something that is to come soon.
const patience = 30 * time.Second

// process is a child that dies with this process.
type process struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
}

// spawn starts a child. The signal on the parent's death is tied to the thread
// that forked, so that thread stays until the child is gone.
func spawn(cmd *exec.Cmd) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p := &process{cmd: cmd, gone: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.gone)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // status says how it ended
		}
	}()
	return p, <-started
}

// signal sends the child a signal.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// end sends the child a signal and waits until it is gone.
func (p *process) end(s syscall.Signal) syscall.WaitStatus {
	p.signal(s)
	<-p.gone
	return p.status()
}

// wait waits until the child has ended by itself.
func (p *process) wait(t testing.TB) syscall.WaitStatus {
	t.Helper()
	select {
	case <-p.gone:
		return p.status()
	case <-time.After(patience):
		t.Fatal("the process does not end")
		return 0
	}
}

func (p *process) status() syscall.WaitStatus {
	s, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return s
}

// command is how a replica is started.
type command struct {
	binary string   // the program; "" means the one that is built from these sources
	config string   // its file
	store  string   // URL
	args   []string // more flags
	env    []string
	prefix []string // program and arguments that run it
	dir    string   // holds its log
}

// replica is a running team-server.
type replica struct {
	*process
	target rig.Target
	took   time.Duration // from start to ready
	log    string        // file
}

var ready = regexp.MustCompile(`^ready http=(\S+) grpc=(\S+)`)

// start starts a replica and waits until it is ready. The error of one that is
// not holds what it said.
func (c command) start() (*replica, error) {
	r, said, err := c.spawn()
	if err != nil {
		return nil, err
	}
	select {
	case line := <-said:
		m := ready.FindStringSubmatch(line)
		if m == nil {
			return nil, r.notReady(line)
		}
		r.target = rig.Target{HTTP: "http://" + m[1], GRPC: m[2]}
		return r, nil
	case <-time.After(patience):
		r.end(syscall.SIGKILL)
		return nil, fmt.Errorf("not ready in %v\n%s", patience, r.tail())
	}
}

// died is how a process ended that was to get ready.
type died struct {
	syscall.WaitStatus
	text string // the end of its log
}

// Error says how.
func (d died) Error() string {
	return fmt.Sprintf("ended before it was ready: exit code %d, signal %d\n%s", d.ExitStatus(), d.Signal(), d.text)
}

// notReady is the error of a process that has said something else than that it
// is ready, or nothing.
func (r *replica) notReady(line string) error {
	if line != "" {
		r.end(syscall.SIGKILL)
		return fmt.Errorf("said %q\n%s", line, r.tail())
	}
	select {
	case <-r.gone:
	case <-time.After(patience):
		r.end(syscall.SIGKILL)
	}
	return died{r.status(), r.tail()}
}

// spawn starts the program; said gets its first line, or "" where it says nothing.
func (c command) spawn() (r *replica, said <-chan string, err error) {
	path := c.binary
	if path == "" {
		if path, err = program(); err != nil {
			return nil, nil, err
		}
	}
	log, err := os.CreateTemp(c.dir, "server-*.log")
	if err != nil {
		return nil, nil, err
	}
	defer log.Close() // the program has its own
	if c.config, err = c.scheduled(); err != nil {
		return nil, nil, err
	}
	argv := append(c.prefix[:len(c.prefix):len(c.prefix)], path, "serve", "-c", c.config, "--http=127.0.0.1:0", "--grpc=127.0.0.1:0", "--log-level=warn", "--store="+c.store)
	argv = append(argv, c.args...)
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Stderr, cmd.Env = c.dir, log, append(os.Environ(), c.env...)
	out, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.Stdout = in
	began := time.Now()
	p, err := spawn(cmd)
	in.Close()
	if err != nil {
		out.Close()
		return nil, nil, err
	}
	r = &replica{process: p, log: log.Name()}
	line := make(chan string, 1)
	go func() {
		defer out.Close()
		first, _ := bufio.NewReader(out).ReadString('\n')
		r.took = time.Since(began)
		line <- first
		<-p.gone // a pipe without a reader would end it
	}()
	return r, line, nil
}

// scheduled is the configuration, with an engine if there is a Temporal for the store. Each store has a task queue of its
// own.
func (c command) scheduled() (string, error) {
	address, namespace, ok := strings.Cut(os.Getenv(temporalVariable), " ")
	u, err := url.Parse(c.store)
	if !ok || err != nil || u.Scheme != "postgres" {
		return c.config, err
	}
	text, err := os.ReadFile(c.config)
	if err != nil {
		return "", err
	}
	engine := fmt.Sprintf("  engine: {temporal: {address: %q, namespace: %q, task_queue: %q}}\n", address, namespace, u.Query().Get("search_path"))
	if before, after, ok := strings.Cut(string(text), "\nserver:\n"); ok {
		text = []byte(before + "\nserver:\n" + engine + after)
	} else {
		text = append(text, "\nserver:\n"+engine...)
	}
	path := filepath.Join(c.dir, "temporal-"+filepath.Base(c.config))
	return path, os.WriteFile(path, text, 0o600)
}

// said is everything in the log.
func (r *replica) said() string {
	b, _ := os.ReadFile(r.log)
	return string(b)
}

// tail is the end of the log.
func (r *replica) tail() string {
	lines := strings.Split(r.said(), "\n")
	return strings.Join(lines[max(0, len(lines)-25):], "\n")
}

// sqlite is the URL of a store in a file of the test.
func sqlite(t testing.TB) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "team.db")
}
