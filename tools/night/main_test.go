package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// checkout is a repository with one file, as the working folder.
func checkout(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, "file", "one")
	for _, args := range [][]string{
		{"init", "-q"},
		{"add", "."},
		{"-c", "user.name=n", "-c", "user.email=n@example.com", "commit", "-q", "-m", "one"},
		{"config", "user.name", "n"},
		{"config", "user.email", "n@example.com"},
	} {
		if _, err := git(t.Context(), os.Environ(), args...); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A part that has passed is not run again until a file changes; one that failed is.
func TestNight(t *testing.T) {
	checkout(t)
	out := t.TempDir()
	parts := filepath.Join(out, "parts.txt")
	ran := filepath.Join(out, "ran")
	write(t, parts, "# a comment\n\ngood: echo good >> "+ran+"\nbad: echo bad >> "+ran+"; test -e "+out+"/mended\nlast: echo last >> "+ran+"\n")
	play := func(names ...string) (string, error) {
		var said bytes.Buffer
		err := (&night{out: &said, dir: out, limit: time.Hour}).run(t.Context(), parts, false, names)
		b, readErr := os.ReadFile(ran)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if err := os.Remove(ran); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(b)), " "), err
	}
	if got, err := play(); got != "good bad last" || err == nil || !strings.Contains(err.Error(), "not passed: bad;") {
		t.Errorf("all ran %q, %v", got, err)
	}
	if got, err := play(); got != "bad" || err == nil {
		t.Errorf("the second time ran %q, %v", got, err)
	}
	write(t, filepath.Join(out, "mended"), "")
	if got, err := play(); got != "bad" || err != nil {
		t.Errorf("once it was mended ran %q, %v", got, err)
	}
	write(t, "file", "two")
	if got, err := play("last", "good"); got != "good last" || err != nil {
		t.Errorf("after a change ran %q, %v", got, err)
	}
	write(t, "file", "one")
	write(t, ran, "nothing")
	if got, err := play(); got != "nothing" || err != nil {
		t.Errorf("with the files as they were ran %q, %v", got, err)
	}
}

// A part that takes too long fails.
func TestNightLimit(t *testing.T) {
	checkout(t)
	out := t.TempDir()
	parts := filepath.Join(out, "parts.txt")
	write(t, parts, "long: exec sleep 600\n")
	var said bytes.Buffer
	n := &night{out: &said, dir: out, limit: time.Nanosecond}
	if err := n.run(t.Context(), parts, false, nil); err == nil || !strings.Contains(said.String(), "long: FAILED: it took longer than 1ns; split it") {
		t.Errorf("%v, %s", err, said.String())
	}
}

// When a night is interrupted, what a part has started ends with it, and no other part begins.
func TestNightInterrupted(t *testing.T) {
	checkout(t)
	out := t.TempDir()
	parts, pipe := filepath.Join(out, "parts.txt"), filepath.Join(out, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, parts, "long: (echo begun; exec sleep 600) > "+pipe+" & wait\nnext: touch "+out+"/next\n")
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- (&night{out: io.Discard, dir: out, limit: time.Hour}).run(ctx, parts, false, nil)
	}()
	f, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	interrupt()
	if _, err := io.ReadAll(f); err != nil { // ends when nobody has the pipe open for writing
		t.Error(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "not passed: long, next;") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(out, "next")); err == nil {
		t.Error("the next part began")
	}
}

func TestReadParts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "parts.txt")
	for text, want := range map[string]string{
		"a: x\nb: y\n": "there is no part \"c\"; known are a, b",
		"a x\n":        "\"a x\" is not a part",
		"a: x\na: y\n": "\"a: y\" is not a part",
		"a/b: x\n":     "\"a/b: x\" is not a part",
	} {
		write(t, file, text)
		if _, err := readParts(file, []string{"c"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// The parts of the repository can be read.
func TestRepositoryParts(t *testing.T) {
	for file, first := range map[string]string{"parts.txt": "night-clients", "week.txt": "crash-1"} {
		parts, err := readParts(file, nil)
		if err != nil || len(parts) == 0 || parts[0].name != first {
			t.Errorf("%s: %v, %v", file, parts, err)
		}
	}
}

// A file that git does not know yet makes other files of a checkout.
func TestTreeOf(t *testing.T) {
	checkout(t)
	index := filepath.Join(t.TempDir(), "index")
	before, err := treeOf(t.Context(), index)
	if err != nil {
		t.Fatal(err)
	}
	write(t, "new", "")
	after, err := treeOf(t.Context(), index)
	if err != nil || after == before {
		t.Errorf("%s, then %s, %v", before, after, err)
	}
	if status, err := git(t.Context(), os.Environ(), "status", "--porcelain"); err != nil || status != "?? new" {
		t.Errorf("%q, %v", status, err)
	}
}

// A part that lacks what it needs exits with 77: it is neither passed nor failed, and says why.
func TestNightNotRun(t *testing.T) {
	checkout(t)
	out := t.TempDir()
	parts := filepath.Join(out, "parts.txt")
	write(t, parts, "kit: echo fetch it; exit 77\n")
	for range 2 {
		var said bytes.Buffer
		if err := (&night{out: &said, dir: out, limit: time.Hour}).run(t.Context(), parts, false, nil); err != nil || !strings.Contains(said.String(), "kit: not run: fetch it\n") {
			t.Errorf("%v: %s", err, said.String())
		}
	}
}
