package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentteams/team-server/internal/testkit/child"
)

// pause is the delay between attempts to connect to a server that is starting.
const pause = 20 * time.Millisecond

// account is the user who runs a server.
type account struct{ uid, gid uint32 }

// Server is a PostgreSQL server with its own data directory. fsync is on. It may be killed and
// started again; it is stopped at the end of the test if it runs. It is not safe for concurrent
// use.
type Server struct {
	bin  string // directory of the programs
	dir  string // directory of data, socket and log; owned by the user who runs the server
	port int
	proc *child.Process // nil if it is not running
	// network is whose clients the server also accepts, such as 10.0.0.0/8; "" for loopback only.
	network string
}

// New returns a running server, which is removed when t ends. It skips t if there is no PostgreSQL.
func New(t testing.TB) *Server {
	t.Helper()
	return NewIn(t, "")
}

// NewIn is like New. The server listens on all addresses and also accepts the clients of a network,
// such as 10.0.0.0/8. It trusts them, so the network must belong to the test.
func NewIn(t testing.TB, network string) *Server {
	t.Helper()
	s, err := create(binaries(t), "", network)
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

// create initializes a data directory below parent, or below the directory of temporary files if
// parent is "", and starts a server.
func create(bin, parent, network string) (*Server, error) {
	dir, err := os.MkdirTemp(parent, "pgtest")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, network: network}
	err = s.init()
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// init initializes the data directory without syncing it to disk: tests are about the durability of
// later commits.
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
	if s.network == "" {
		return nil
	}
	hosts, err := os.OpenFile(filepath.Join(s.data(), "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(hosts, "host all all %s trust\n", s.network)
	return errors.Join(err, hosts.Close())
}

func (s *Server) program(name string) string { return filepath.Join(s.bin, name) }
func (s *Server) data() string               { return filepath.Join(s.dir, "data") }
func (s *Server) log() string                { return filepath.Join(s.dir, "log") }

// URL returns the URL of the database. It is the same after each Start.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
}

// Schema returns the URL of an empty schema, which is removed with the server.
func (s *Server) Schema(t testing.TB) string {
	t.Helper()
	return schema(t, s.URL(), false)
}

// Start starts the server, always on the same port, and returns when it accepts connections.
// Remaining processes of a killed server may delay this; Start retries for 30 seconds.
func (s *Server) Start() error {
	if s.proc != nil {
		return errors.New("pgtest: the server is already running")
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
		if port, err = child.Port(); err != nil {
			return err
		}
	}
	proc, err := s.spawn(port)
	if err != nil {
		return err
	}
	if err := s.answers(proc, port); err != nil {
		proc.End(syscall.SIGQUIT)
		return fmt.Errorf("%w\n%s", err, s.tail())
	}
	s.proc, s.port = proc, port
	return nil
}

func (s *Server) spawn(port int) (*child.Process, error) {
	user, err := unprivileged()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the server has its own
	listen := "127.0.0.1"
	if s.network != "" {
		listen = "*"
	}
	cmd := exec.CommandContext(context.Background(), s.program("postgres"), "-D", s.data(), "-p", strconv.Itoa(port), //nolint:gosec // a program of PostgreSQL's
		"-c", "listen_addresses="+listen, "-c", "unix_socket_directories="+s.dir, "-c", "max_connections=200")
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = s.dir, log, log, attributes(user)
	return child.Start(cmd)
}

// answers waits until the server accepts a connection. It fails if the server exits.
func (s *Server) answers(proc *child.Process, port int) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, (&Server{port: port}).URL())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-proc.Gone:
			return fmt.Errorf("pgtest: the server exited: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("pgtest: the server does not answer: %w", err)
		case <-time.After(pause):
		}
	}
}

// tail returns the last lines of the server's log.
func (s *Server) tail() []byte {
	b, err := os.ReadFile(s.log())
	if err != nil {
		return nil
	}
	lines := bytes.Split(b, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-20):], []byte("\n"))
}

// Kill kills the postmaster with SIGKILL and returns when it has exited. The data is left as after
// a crash.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop shuts the server down: connections are closed and data is written.
func (s *Server) Stop() { s.end(syscall.SIGINT) }

func (s *Server) end(signal syscall.Signal) {
	if s.proc != nil {
		s.proc.End(signal)
		s.proc = nil
	}
}

// close stops the server without writing data, and removes its files.
func (s *Server) close() error {
	s.end(syscall.SIGQUIT)
	return os.RemoveAll(s.dir)
}
