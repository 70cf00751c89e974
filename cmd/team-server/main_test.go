package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentteams/team-server/internal/testkit/sample"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"team-server": func() {
		if len(os.Args) > 1 && os.Args[1] == "call" {
			os.Args = slices.Insert(os.Args, 2, strings.Fields(os.Getenv("CALL_FLAGS"))...)
		}
		main()
	}})
}

// TestScripts runs sessions at a terminal: testdata/script/*.txtar.
func TestScripts(t *testing.T) { runScripts(t, "testdata/script", "") }

// TestA_01_Call runs sessions with call, testdata/call/*.txtar, over each binding in
// each version of the protocol; with the race detector, over the binding that the card
// prefers.
func TestA_01_Call(t *testing.T) {
	for name, flags := range map[string]string{
		"grpc":         "--binding grpc",
		"rest":         "--binding rest",
		"jsonrpc":      "--binding jsonrpc",
		"rest 0.3":     "--binding rest --protocol 0.3",
		"jsonrpc 0.3":  "--protocol 0.3",
		"as on a card": "",
	} {
		if !sample.All() && name != "as on a card" {
			continue
		}
		t.Run(name, func(t *testing.T) { runScripts(t, "testdata/call", flags) })
	}
}

func runScripts(t *testing.T, dir, callFlags string) {
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			here, err := os.Getwd()
			e.Values[serverKey{}] = &holder{}
			e.Setenv("EXAMPLES", here+"/../../examples")
			e.Setenv("CALL_FLAGS", callFlags)
			return errors.Join(err, giveFiles(e.WorkDir))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "start": start, "end": end, "waitlog": waitLog, "keep": keep, "keepout": keepOut, "interrupt": interrupt, "hangup": hangup,
		},
	})
}

// giveFiles writes what scripts cannot hold: a picture without a name that says so,
// and a pair of keys.
func giveFiles(dir string) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	signs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	verifies, err := x509.MarshalPKIXPublicKey(public)
	return errors.Join(err,
		os.WriteFile(filepath.Join(dir, "noname"), []byte("\x89PNG\r\n\x1a\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "private.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: signs}), 0o600),
		os.WriteFile(filepath.Join(dir, "public.pem"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: verifies}), 0o600))
}

// interrupt runs a command, interrupts it when it has written a text, and checks its
// exit code: interrupt TEXT CODE COMMAND….
func interrupt(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: interrupt TEXT CODE COMMAND...")
	}
	c := exec.CommandContext(context.Background(), args[2], args[3:]...)
	c.Dir = ts.MkAbs(".")
	c.Env = append(os.Environ(), "CALL_FLAGS="+ts.Getenv("CALL_FLAGS"))
	out, all := io.Pipe()
	c.Stdout, c.Stderr = all, io.MultiWriter(ts.Stderr(), all)
	ts.Check(c.Start())
	go func() { _, _ = c.Wait(), all.Close() }()
	late := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() })
	defer late.Stop()
	done := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		ts.Logf("%s", lines.Text())
		if !done && strings.Contains(lines.Text(), args[0]) {
			done = true
			_ = c.Process.Signal(os.Interrupt)
		}
	}
	if got := strconv.Itoa(c.ProcessState.ExitCode()); !done || got != args[1] {
		ts.Fatalf("%q was written: %v; exit code %s, want %s", args[0], done, got, args[1])
	}
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
func keep(ts *testscript.TestScript, _ bool, args []string) { keepFrom(ts, "stderr", args) }

// keepOut is keep for the standard output.
func keepOut(ts *testscript.TestScript, _ bool, args []string) { keepFrom(ts, "stdout", args) }

func keepFrom(ts *testscript.TestScript, file string, args []string) {
	m := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile(file))
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

// hangup has the server see that its terminal is closed.
func hangup(ts *testscript.TestScript, _ bool, _ []string) {
	b := ts.Value(serverKey{}).(*holder).server //nolint:forcetypeassert // set by TestScripts
	ts.Check(b.cmd.Process.Signal(syscall.SIGHUP))
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
