package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// readyTime is the timeout for a server to print its addresses.
const readyTime = 30 * time.Second

// server is a server on loopback that can be restarted at the same addresses.
type server struct {
	command    []string         // the program and its arguments, without the addresses
	http, grpc string           // host:port
	controls   *httptest.Server // a POST restarts the server

	mu      sync.Mutex
	process *exec.Cmd // guarded by mu
	drained chan struct{}
}

func start(command ...string) (*server, error) {
	s := &server{command: command, http: "127.0.0.1:0", grpc: "127.0.0.1:0"}
	if err := s.begin(); err != nil {
		return nil, err
	}
	s.controls = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if err := s.again(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	return s, nil
}

func (s *server) url() string     { return "http://" + s.http }
func (s *server) control() string { return s.controls.URL }

// begin starts the program and waits until it is ready.
func (s *server) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := exec.Command(s.command[0], slices.Concat(s.command[1:], []string{"--http", s.http, "--grpc", s.grpc})...) //nolint:noctx // the server itself; ended by stop
	pipe, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	s.process, s.drained = c, make(chan struct{})
	late := time.AfterFunc(readyTime, func() { _ = c.Process.Kill() })
	defer late.Stop()
	out := bufio.NewReader(pipe)
	line, err := out.ReadString('\n')
	go func(done chan struct{}) {
		defer close(done)
		_, _ = io.Copy(io.Discard, out)
	}(s.drained)
	if err != nil {
		return fmt.Errorf("waiting for the line that says where the server is: %w", err)
	}
	if _, err := fmt.Sscanf(line, "ready http=%s grpc=%s", &s.http, &s.grpc); err != nil {
		return fmt.Errorf("reading %q: %w", line, err)
	}
	return nil
}

// end stops the program with a signal and returns how it ended.
func (s *server) end(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.Process.Signal(sig); err != nil {
		return err
	}
	late := time.AfterFunc(readyTime, func() { _ = s.process.Process.Kill() })
	defer late.Stop()
	<-s.drained
	return s.process.Wait()
}

// again restarts the server, with an empty store, at the same addresses.
func (s *server) again() error {
	var exit *exec.ExitError
	if err := s.end(syscall.SIGKILL); err != nil && !errors.As(err, &exit) {
		return err
	}
	return s.begin()
}

// stop stops the server and checks that it exits without an error.
func (s *server) stop() error {
	s.controls.Close()
	if err := s.end(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending the server: %w", err)
	}
	return nil
}
