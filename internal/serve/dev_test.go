package serve

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

// put replaces a file at once, as editors do.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// busy has a file of a folder written all the time until the test ends.
func busy(t *testing.T, path string) {
	t.Helper()
	stop, stopped := make(chan struct{}), make(chan struct{})
	tick := time.NewTicker(settle / 20)
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				if err := os.WriteFile(path, fmt.Appendln(nil, n), 0o600); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped; tick.Stop() })
}

const parrot = "version: v1\nagents: {parrot: {scripted: {steps: [{text: %q}]}}}\n"

// TestDevTellsChangesOnce has dev say what a change came to, once, while it writes
// what it says to a log in the folder that it watches, and others write there too.
func TestDevTellsChangesOnce(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "team.yaml")
	put(t, file, fmt.Sprintf(parrot, "one"))
	says := make(chan string, 100)
	d := &Dev{Path: dir, HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop(), Say: func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if err := os.WriteFile(filepath.Join(dir, "dev.log"), []byte(text), 0o600); err != nil {
			t.Error(err)
		}
		says <- text
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := d.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx, r) }()
	busy(t, filepath.Join(dir, "team.db"))
	for _, step := range []struct{ text, says string }{
		{"version: v1\nteems: {}\n", `unknown key "teems"`},
		{"version: v1\ntools: 1\n", "not reloaded; the running agents are unchanged:"},
		{fmt.Sprintf(parrot, "one"), "the faults are fixed; the running agents are unchanged"},
		{fmt.Sprintf(parrot, "two"), "reloaded " + file + ": parrot"},
		{fmt.Sprintf(parrot, "two") + "# a comment\n", ""},
		{fmt.Sprintf(parrot, "three"), "reloaded " + file + ": parrot"},
	} {
		put(t, file, step.text)
		if step.says == "" {
			continue
		}
		select {
		case got := <-says:
			if !strings.Contains(got, step.says) {
				t.Fatalf("says %q, not %q", got, step.says)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("does not say %q", step.says)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(says) > 0 {
		t.Errorf("says also %q", <-says)
	}
}

// TestDevSaysTheSameFaultsOnce: another content may have the same faults.
func TestDevSaysTheSameFaultsOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "team.yaml")
	put(t, file, fmt.Sprintf(parrot, "one"))
	var says []string
	d := &Dev{Path: file, HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop(), Say: func(format string, args ...any) {
		says = append(says, fmt.Sprintf(format, args...))
	}}
	r, err := d.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Stop() }()
	l := &reloader{Reloads: Reloads{Source: d.source, report: d}, r: r, file: r.file, known: map[string]bool{}}
	for _, text := range []string{"version: v1\nteems: {}\n", "version: v1\nteems: {}\n# a comment\n", "version: v1\nteems: {}\n\n"} {
		put(t, file, text)
		if l.reload(t.Context()); l.file != r.file {
			t.Error("takes a file with faults")
		}
	}
	if len(says) != 1 || !strings.Contains(says[0], `unknown key "teems"`) {
		t.Errorf("says %q", says)
	}
}

// TestWatch has files loaded when their content is another one, as often as that and
// no more, in folders that are busy, new, or not there yet.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	later := filepath.Join(dir, "later")
	files := []string{filepath.Join(dir, "team.yaml"), filepath.Join(later, "on", "script.yaml")}
	put(t, files[0], "0")
	loads := make(chan *readings, 100)
	load := func() *readings {
		read := &readings{}
		for _, f := range files {
			read.record(f)
		}
		loads <- read
		return read
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	before := load()
	put(t, files[0], "1") // before it is watched
	busy(t, filepath.Join(dir, "dev.log"))
	go func() { ended <- watch(ctx, watching{read: before, load: load, files: true, say: t.Errorf}) }()
	<-loads
	for _, change := range []func(){
		func() {},
		func() { put(t, files[0], "2") },
		func() {
			if err := os.MkdirAll(filepath.Dir(files[1]), 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, files[1], "3")
		},
		func() { put(t, files[1], "4") },
		func() {
			if err := os.RemoveAll(later); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			if err := os.MkdirAll(filepath.Dir(files[1]), 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, files[1], "5")
		},
		func() {
			if err := os.Remove(files[0]); err != nil {
				t.Fatal(err)
			}
		},
	} {
		change()
		select {
		case read := <-loads:
			if maps.Equal(read.recorded(), before.recorded()) {
				t.Fatal("loads what has not changed")
			}
			before = read
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(30 * time.Second):
			t.Fatal("a change was not noticed")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(loads) > 0 {
		t.Error("loads once more")
	}
}
