package child

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// FreePort returns a port of the loopback interface that nothing listens on.
func FreePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing follows from it
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
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
