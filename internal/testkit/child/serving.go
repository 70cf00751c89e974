package child

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Ports from firstPort up to lastPort are below those that Linux (32768), macOS and Windows (49152) give to
// connections and to listeners on port 0, so that none of these takes a port between its two uses.
const (
	firstPort = 10240
	lastPort  = 32767
)

// FreePort returns a port of the loopback interface that nothing listens on, for a program that is told its
// port, or for a server that is stopped and started again at its address.
func FreePort(t testing.TB) string {
	t.Helper()
	port, err := Port()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// Port is like FreePort, for callers without a test.
func Port() (int, error) {
	var last error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)                            //nolint:gosec // not a secret
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // at once
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("child: no free port: %w", last)
}

// Serving starts a program and returns when it answers at a URL with 200, for which it waits as long as
// patience. What it prints goes into a file of the test. It is killed when the test ends.
func Serving(t *testing.T, cmd *exec.Cmd, url string, patience time.Duration) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.ArtifactDir(), filepath.Base(cmd.Path)+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.End(syscall.SIGKILL); _ = log.Close() })
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(patience); !answers(t, url); {
		select {
		case <-tick.C:
			continue
		case <-p.Gone:
		case <-limit:
		}
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("%s is not ready:\n%s", cmd.Path, said)
	}
}

// answers reports whether a server answers with 200.
func answers(t *testing.T, url string) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}
