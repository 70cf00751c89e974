package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module writes a module with a test that passes, one that fails when the file "broken" exists, and
// a package that does not compile when broken is set, and makes it the working folder.
func module(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"go.mod":    "module example.com/fake\n\ngo 1.26\n",
		"a_test.go": "package a\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestGood(t *testing.T) {}\n\nfunc TestNowAndThen(t *testing.T) {\n\tt.Run(\"part\", func(t *testing.T) {\n\t\tif _, err := os.Stat(os.Getenv(\"HUNT_BROKEN\")); err == nil {\n\t\t\tt.Error(\"broken\")\n\t\t}\n\t})\n}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=n", "-c", "user.email=n@example.com", "commit", "-q", "-m", "one"}} {
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// TestHunt names the failed test of a run with its log, continues with the runs that are left, and
// prints old failures again.
func TestHunt(t *testing.T) {
	module(t)
	broken := filepath.Join(t.TempDir(), "broken")
	t.Setenv("HUNT_BROKEN", broken)
	dir := t.TempDir()
	hunted := func(runs int) (string, error) {
		var said bytes.Buffer
		err := (&hunt{out: &said, runs: runs, dir: dir, limit: 5 * time.Minute}).run(t.Context())
		return said.String(), err
	}
	said, err := hunted(1)
	if err != nil || !strings.Contains(said, "run 0: passed, -race\n0 of 1 runs failed") {
		t.Fatalf("%v\n%s", err, said)
	}
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	said, err = hunted(2)
	if err == nil || !strings.Contains(err.Error(), "1 of 2 runs failed") {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(said, "run 0: passed") || !strings.Contains(said, "run 1: example.com/fake TestNowAndThen/part, shuffle ") || !strings.Contains(said, ", plain: "+dir) {
		t.Errorf("output\n%s", said)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	again, err := hunted(2) // nothing is run
	if err == nil || again != said {
		t.Errorf("%v\n%s\nwant\n%s", err, again, said)
	}
	if err := os.WriteFile("a_test.go", []byte("package a\n\nfunc broken(\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err = hunted(1) // other files
	if err == nil || !strings.Contains(said, "run 0: example.com/fake") {
		t.Errorf("of a package that does not compile: %v\n%s", err, said)
	}
}

// TestHunt_Interrupted leaves no log of a run that was interrupted.
func TestHunt_Interrupted(t *testing.T) {
	module(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log := filepath.Join(dir, "0.json")
	if err := (&hunt{limit: time.Minute, packages: []string{"./..."}}).once(ctx, 1, log); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(log); err == nil {
		t.Error("there is a log")
	}
	if err := (&hunt{runs: 0}).run(t.Context()); err == nil || !strings.Contains(err.Error(), "-n: 0 must be 1 to 1000") {
		t.Errorf("error %v", err)
	}
}

// TestConditions differ in eight runs.
func TestConditions(t *testing.T) {
	seen := map[condition]bool{}
	for n := range 8 {
		seen[conditionOf(n)] = true
	}
	if len(seen) < 8 {
		t.Errorf("%d different conditions, want 8: %v", len(seen), seen)
	}
	stop := burn()
	stop()
}
