//go:build linux

package durable

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/sample"
)

// previousVariable names the program of the previous version. Without it, it is built from the commit in
// testdata/previous.txt, which is empty until there is a release.
const previousVariable = "TEAM_PREVIOUS_SERVER"

// previous returns the program of the previous version. It skips t unless tests run all of their cases, or the program is
// named, because building it takes a minute.
func previous(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(previousVariable); path != "" {
		return path
	}
	if !sample.All() {
		t.Skip("the program of the previous version is built only with TEAM_TESTS=all; or name it in " + previousVariable)
	}
	path, err := builtPrevious()
	if errors.Is(err, errNoRelease) {
		t.Skip(err)
	}
	if errors.Is(err, errNoHistory) {
		t.Skip("SKIP-MISSING-TOOL: " + err.Error() + "; fetch the history with: git fetch --unshallow")
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	errNoHistory = errors.New("the sources of the previous version are not in this clone")
	errNoRelease = errors.New("there is no release yet")
)

// builtPrevious builds the previous version once, beside the program of these sources.
var builtPrevious = sync.OnceValues(func() (string, error) {
	commit, err := os.ReadFile("testdata/previous.txt")
	if err != nil {
		return "", err
	}
	if len(commit) == 0 {
		return "", errNoRelease
	}
	current, err := program()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(filepath.Dir(current), "previous")
	if err := checkOut(strings.TrimSpace(string(commit)), dir); err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(current), "team-server-previous")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", path, "./cmd/team-server")
	build.Dir, build.Stderr = dir, os.Stderr
	return path, build.Run()
})

// checkOut writes the files of a commit into a folder.
func checkOut(commit, dir string) error {
	git := exec.CommandContext(context.Background(), "git", "archive", "--format=tar", commit)
	git.Dir = repository
	out, err := git.StdoutPipe()
	if err != nil {
		return err
	}
	if err := git.Start(); err != nil {
		return err
	}
	n, err := extract(tar.NewReader(out), dir)
	if ended := git.Wait(); ended != nil && n == 0 {
		return fmt.Errorf("%w: git archive %s: %w", errNoHistory, commit, ended)
	}
	return err
}

// extract writes the regular files of an archive into a folder, and returns how many there were.
func extract(r *tar.Reader, dir string) (n int, err error) {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return n, err
		}
		b, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(path, b, h.FileInfo().Mode().Perm())
		}
		if err != nil {
			return n, err
		}
		n++
	}
}

// TestPrevious_P19_Upgrade kills the previous version under load, and starts this one with its store: nothing that was
// acknowledged is lost, and what was running comes to its end.
func TestPrevious_P19_Upgrade(t *testing.T) {
	before := previous(t)
	for _, s := range stores {
		t.Run("P19 "+s.name, func(t *testing.T) {
			s.failpoints = nil // the previous version was built without them
			c := newCrash(t, s, seed(t))
			l := startLoad(t.Context(), c.history, c.front, c.seed)
			defer l.abandon()
			c.binary = before
			if err := c.start(""); err != nil {
				t.Fatal(err)
			}
			open, err := l.reach(300, inFlight, c.now.gone)
			if err != nil {
				t.Fatal(err)
			}
			c.now.end(syscall.SIGKILL)
			c.stopped(fmt.Sprintf("the previous version, %d tasks under way", open))
			c.binary = ""
			if err := c.start(""); err != nil {
				t.Fatal(err)
			}
			if err := l.finish(); err != nil {
				t.Fatal(c.giveUp(err))
			}
			if status := c.now.end(syscall.SIGTERM); status.ExitStatus() != 0 {
				t.Errorf("ended with %v\n%s", status, c.now.tail())
			}
			c.stopped("the end")
			r, err := c.verdict(c.history)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %d tasks were under way at the upgrade: %v", s.name, open, r)
			if err := r.err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPrevious_P19_SideBySide replaces the replicas of the previous version one after the other under load. Between that,
// replicas of both versions share the work.
func TestPrevious_P19_SideBySide(t *testing.T) {
	before := previous(t)
	c := newCluster(t)
	c.gate = nil
	c.binary = before
	c.start("a")
	c.start("b")
	f := newFront()
	l := startLoad(t.Context(), c.history, f, seed(t))
	defer l.abandon()
	c.binary = ""
	for _, step := range []struct{ leaves, stays string }{{"a", "b"}, {"b", "a"}} {
		for _, name := range []string{step.stays, step.leaves} { // of the second round, both versions
			if err := f.serve(c.replicas[name].target); err != nil {
				t.Fatal(err)
			}
			c.history.add(entry{Op: opStart, Both: true})
			c.reach(l, 150)
		}
		if err := f.serve(c.replicas[step.stays].target); err != nil {
			t.Fatal(err)
		}
		c.leave(step.leaves)
		c.start(step.leaves)
	}
	if err := f.serve(c.replicas["b"].target); err != nil {
		t.Fatal(err)
	}
	c.history.add(entry{Op: opStart, Both: true})
	c.reach(l, 150)
	if err := l.finish(); err != nil {
		t.Fatal(err)
	}
	f.gone()
	c.collect()
	r, err := c.verdict(c.history)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("both versions side by side: %v", r)
	if err := r.err(); err != nil {
		t.Error(err)
	}
}
