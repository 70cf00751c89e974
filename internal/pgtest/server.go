package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// pause is how long to wait before a server that is not there yet is asked again.
const pause = 20 * time.Millisecond

// account is who runs a server.
type account struct{ uid, gid uint32 }

// Server is a PostgreSQL server with a data directory of its own. fsync is on.
// It may be killed and started again, also at the end of a test: what runs is
// ended with it. One call at a time.
type Server struct {
	bin  string // folder of the programs
	dir  string // holds data, socket and log; belongs to who runs the server
	port int
	proc *process // nil when it does not run
}

// New returns a server that runs, and is removed when t ends. Skips t when
// there is no PostgreSQL.
func New(t testing.TB) *Server {
	t.Helper()
	s, err := create(binaries(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// create makes the data of a server and starts it.
func create(bin string) (*Server, error) {
	dir, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir}
	err = s.init()
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// init makes the data directory, a few files of which do not have to be
// durable: the server's own commits are what tests are about.
func (s *Server) init() error {
	user, err := unprivileged()
	if err != nil {
		return err
	}
	if user != nil {
		if err := os.Chown(s.dir, int(user.uid), int(user.gid)); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(context.Background(), s.program("initdb"), "--pgdata="+s.data(), "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync") //nolint:gosec // a program of PostgreSQL's
	cmd.Dir, cmd.SysProcAttr = s.dir, attributes(user)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: initdb: %w\n%s", err, out)
	}
	return nil
}

func (s *Server) program(name string) string { return filepath.Join(s.bin, name) }
func (s *Server) data() string               { return filepath.Join(s.dir, "data") }
func (s *Server) log() string                { return filepath.Join(s.dir, "log") }

// URL is the server's address and its database, the same after every Start.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
}

// Schema returns the URL of an empty schema on the server. It is gone with it.
func (s *Server) Schema(t testing.TB) string {
	t.Helper()
	return schema(t, s.URL(), false)
}

// Start starts the server, on its first port again, and returns when it
// answers. Processes of one that was killed may hold it up; it tries for 30 s.
func (s *Server) Start() error {
	if s.proc != nil {
		return errors.New("pgtest: the server runs")
	}
	var err error
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(pause) {
		if err = s.start(); err == nil {
			return nil
		}
	}
	return err
}

// start tries to start the server once.
func (s *Server) start() error {
	port := s.port
	if port == 0 {
		var err error
		if port, err = freePort(); err != nil {
			return err
		}
	}
	proc, err := s.spawn(port)
	if err != nil {
		return err
	}
	if err := s.answers(proc, port); err != nil {
		proc.end(syscall.SIGQUIT)
		return fmt.Errorf("%w\n%s", err, s.tail())
	}
	s.proc, s.port = proc, port
	return nil
}

func (s *Server) spawn(port int) (*process, error) {
	user, err := unprivileged()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()                                                                                // the server has its own
	cmd := exec.CommandContext(context.Background(), s.program("postgres"), "-D", s.data(), "-p", strconv.Itoa(port), //nolint:gosec // a program of PostgreSQL's
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+s.dir, "-c", "max_connections=200")
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = s.dir, log, log, attributes(user)
	return spawn(cmd)
}

// answers waits until the server takes a connection, or has ended.
func (s *Server) answers(proc *process, port int) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, (&Server{port: port}).URL())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-proc.gone:
			return fmt.Errorf("pgtest: the server has ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("pgtest: the server does not answer: %w", err)
		case <-time.After(pause):
		}
	}
}

// tail is the end of the server's log.
func (s *Server) tail() []byte {
	b, err := os.ReadFile(s.log())
	if err != nil {
		return nil
	}
	lines := bytes.Split(b, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-20):], []byte("\n"))
}

// Kill sends the postmaster SIGKILL and returns when it is gone. Its data is
// left as a crash leaves it.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop ends the server in order: connections are cut, data is written.
func (s *Server) Stop() { s.end(syscall.SIGINT) }

func (s *Server) end(signal syscall.Signal) {
	if s.proc != nil {
		s.proc.end(signal)
		s.proc = nil
	}
}

// close ends the server without care for its data, and removes it.
func (s *Server) close() error {
	s.end(syscall.SIGQUIT)
	return os.RemoveAll(s.dir)
}

// freePort is a port of the loopback interface that nobody listens on now.
func freePort() (int, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("pgtest: no TCP address: %v", l.Addr())
	}
	return addr.Port, l.Close()
}
