package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"team-server": main})
}

// TestScripts runs sessions at a terminal: testdata/script/*.txtar.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			here, err := os.Getwd()
			e.Values[serverKey{}] = &holder{}
			e.Setenv("EXAMPLES", here+"/../../examples")
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "start": start, "end": end, "waitlog": waitLog, "keep": keep},
	})
}

// exits runs a command that ends with an exit code: exits 3 team-server ….
func exits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// keep sets a variable to what a pattern finds in the standard error of the last
// command: keep NAME PATTERN.
func keep(ts *testscript.TestScript, _ bool, args []string) {
	m := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stderr"))
	if m == nil {
		ts.Fatalf("no match for %s", args[1])
	}
	ts.Setenv(args[0], m[1])
}

// background is a server that a script has started.
type background struct {
	cmd  *exec.Cmd
	log  *os.File
	done bool
}

type serverKey struct{}

var ready = regexp.MustCompile(`http["=:]+([0-9.:]+).*grpc["=:]+([0-9.:]+)`)

// start starts a server and waits for its ready line: start dev …. It sets HTTP
// and GRPC; what the server says goes to server.log.
func start(ts *testscript.TestScript, _ bool, args []string) {
	log, err := os.Create(ts.MkAbs("server.log"))
	ts.Check(err)
	b := &background{cmd: exec.CommandContext(context.Background(), "team-server", args...), log: log}
	b.cmd.Dir, b.cmd.Stderr = ts.MkAbs("."), log
	b.cmd.Env = append(os.Environ(), "HOME="+ts.Getenv("HOME"))
	stdout, err := b.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(b.cmd.Start())
	ts.Defer(func() { b.end() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.end()
		ts.Fatalf("the server was not ready: %v\n%s", err, ts.ReadFile("server.log"))
	}
	ts.Logf("%s", line)
	m := ready.FindStringSubmatch(line)
	if m == nil {
		ts.Fatalf("no ready line: %q", line)
	}
	ts.Setenv("HTTP", m[1])
	ts.Setenv("GRPC", m[2])
	ts.Value(serverKey{}).(*holder).server = b //nolint:forcetypeassert // set by TestScripts
}

// holder keeps the server of one script.
type holder struct{ server *background }

// end asks the server to end, which it does with exit code 0.
func end(ts *testscript.TestScript, _ bool, _ []string) {
	b := ts.Value(serverKey{}).(*holder).server //nolint:forcetypeassert // set by TestScripts
	if err := b.end(); err != nil {
		ts.Fatalf("the server did not end well: %v\n%s", err, ts.ReadFile("server.log"))
	}
}

func (b *background) end() error {
	if b.done {
		return nil
	}
	b.done = true
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	err := b.cmd.Wait()
	_ = b.log.Close()
	return err
}

// waitLog waits until the server has said something: waitlog TEXT.
func waitLog(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if strings.Contains(ts.ReadFile("server.log"), args[0]) {
			return
		}
		time.Sleep(20 * time.Millisecond) // the server writes a file; there is nothing to wait for
	}
	ts.Fatalf("the server did not say %q:\n%s", args[0], ts.ReadFile("server.log"))
}
