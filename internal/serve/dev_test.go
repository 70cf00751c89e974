package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
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
		if l.reload(t.Context(), false); l.file != r.file {
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
	load := func(bool) *readings {
		read := &readings{}
		for _, f := range files {
			read.record(f)
		}
		loads <- read
		return read
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	before := load(false)
	put(t, files[0], "1") // before it is watched
	busy(t, filepath.Join(dir, "dev.log"))
	go func() { defer close(ended); watch(ctx, watching{read: before, load: load, files: true, say: t.Errorf}) }()
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
		case <-ended:
			t.Fatal("watch has ended")
		case <-time.After(30 * time.Second):
			t.Fatal("a change was not noticed")
		}
	}
	cancel()
	<-ended
	if len(loads) > 0 {
		t.Error("loads once more")
	}
}

// TestWatchLinks: a file is loaded again when links lead to it, and the file or a link on the way to it is another one: a
// link to a file, a link in the path of its folder, a chain of links, and what Kubernetes swaps.
func TestWatchLinks(t *testing.T) {
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, name+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, name, text)
	}
	for name, c := range map[string]struct {
		path    string
		prepare func()
		changes []func()
	}{
		"relative": {"etc/team.yaml", func() { link("../repo/team.yaml", "etc/team.yaml") }, []func(){
			func() { file("repo/team.yaml", "1") },
			func() { file("repo/other.yaml", "2"); link("../repo/other.yaml", "etc/team.yaml") },
			func() { file("repo/other.yaml", "3") },
		}},
		"chain": {"etc/team.yaml", func() {
			link("link", "etc/team.yaml")
			link("../mid/link", "etc/link")
			link("../repo/team.yaml", "mid/link")
		}, []func(){
			func() { file("repo/team.yaml", "1") },
			func() { file("other/team.yaml", "2"); link("../other/team.yaml", "mid/link") },
			func() { file("other/team.yaml", "3") },
			func() { file("repo/else.yaml", "4"); link("../repo/else.yaml", "etc/link") },
		}},
		"folder": {"current/team.yaml", func() { link("repo", "current") }, []func(){
			func() { file("repo/team.yaml", "1") },
			func() { file("other/team.yaml", "2"); link("other", "current") },
			func() { file("other/team.yaml", "3") },
		}},
		"kubernetes": {"etc/team.yaml", func() {
			file("etc/..2026_1/team.yaml", "0")
			link("..2026_1", "etc/..data")
			link("..data/team.yaml", "etc/team.yaml")
		}, []func(){
			func() { file("etc/..2026_2/team.yaml", "1"); link("..2026_2", "etc/..data") },
			func() {
				file("etc/..2026_3/team.yaml", "2")
				link("..2026_3", "etc/..data")
				if err := os.RemoveAll("etc/..2026_2"); err != nil {
					t.Fatal(err)
				}
			},
		}},
		"not there yet": {"etc/team.yaml", func() { link("../later/on/team.yaml", "etc/team.yaml") }, []func(){
			func() { file("later/on/team.yaml", "1") },
			func() { file("later/on/team.yaml", "2") },
		}},
		"circle": {"etc/team.yaml", func() { link("b", "etc/team.yaml"); link("team.yaml", "etc/b") }, []func(){
			func() { link("../repo/team.yaml", "etc/b") },
			func() { file("repo/team.yaml", "1") },
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for _, dir := range []string{"etc", "mid", "other"} {
				file(dir+"/.keep", "")
			}
			file("repo/team.yaml", "0")
			c.prepare()
			loads := make(chan *readings, 100)
			load := func(bool) *readings {
				read := &readings{}
				read.record(c.path)
				loads <- read
				return read
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			before := load(false)
			<-loads
			go func() { defer close(ended); watch(ctx, watching{read: before, load: load, files: true, say: t.Errorf}) }()
			for i, change := range c.changes {
				change()
				if maps.Equal(before.recorded(), before.now()) {
					t.Fatalf("change %d changes nothing", i)
				}
				select {
				case before = <-loads:
				case <-time.After(30 * time.Second):
					t.Fatalf("change %d was not noticed", i)
				}
			}
			cancel()
			<-ended
		})
	}
}

// TestWatchWithoutFiles: if the operating system cannot watch files, from the start or from some time on, that is said
// once, and signals still work.
func TestWatchWithoutFiles(t *testing.T) {
	broken := errors.New("too many open files")
	var opened *fsnotify.Watcher
	for name, open := range map[string]func() (*fsnotify.Watcher, error){
		"from the start": func() (*fsnotify.Watcher, error) { return nil, broken },
		"later": func() (w *fsnotify.Watcher, err error) {
			opened, err = fsnotify.NewWatcher()
			return opened, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			opened = nil
			file := filepath.Join(t.TempDir(), "team.yaml")
			put(t, file, "0")
			read := &readings{}
			read.record(file)
			loads, says, signal := make(chan bool, 10), make(chan string, 10), make(chan os.Signal, 1)
			load := func(signaled bool) *readings {
				loads <- signaled
				return read
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				watch(ctx, watching{read: read, load: load, signal: signal, files: true, open: open, say: func(format string, args ...any) { says <- fmt.Sprintf(format, args...) }})
			}()
			for range 2 {
				signal <- syscall.SIGHUP
				if !<-loads {
					t.Error("a load without a signal")
				}
				if opened != nil {
					opened.Errors <- broken
					opened = nil
				}
			}
			cancel()
			<-ended
			const want = "file changes are not detected: too many open files; send SIGHUP after a change, or restart"
			if got := <-says; got != want || len(says) > 0 {
				t.Errorf("says %q and %d more, want %q", got, len(says), want)
			}
		})
	}
}

// TestDevRefusesMetricsAddresses: dev, which authenticates nobody, does not serve metrics beyond loopback either, nor at
// the address of another listener.
func TestDevRefusesMetricsAddresses(t *testing.T) {
	for settings, want := range map[string]string{
		`{metrics: "0.0.0.0:0", metrics_beyond_loopback: true}`: "server.metrics: dev listens on loopback only, not on 0.0.0.0:0; write 127.0.0.1:0, or use team-server serve",
		`{metrics: "127.0.0.1:8080"}`:                           "server.metrics: 127.0.0.1:8080 is the address of server.http, too; write another port",
		`{http: "0.0.0.0:8080"}`:                                "server.http: dev listens on loopback only, not on 0.0.0.0:8080; write 127.0.0.1:0, or use team-server serve",
	} {
		file := filepath.Join(t.TempDir(), "team.yaml")
		put(t, file, fmt.Sprintf(parrot, "one")+"server: "+settings+"\n")
		d := &Dev{Path: file, GRPC: Off, Log: zap.NewNop(), Say: t.Errorf}
		r, err := d.Start(t.Context())
		if err == nil {
			_ = r.Stop()
		}
		if err == nil || err.Error() != file+"  "+want {
			t.Errorf("%s: %v, want %q", settings, err, want)
		}
	}
}

// TestDevNamesWhatItUses: of the keys that take effect at the next start, dev names only those that it uses.
func TestDevNamesWhatItUses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "team.yaml")
	put(t, file, fmt.Sprintf(parrot, "one"))
	var says []string
	d := &Dev{Path: file, HTTP: "127.0.0.1:0", GRPC: Off, Log: zap.NewNop(), Say: func(format string, args ...any) {
		says = append(says, fmt.Sprintf(format, args...))
	}}
	r, err := d.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Stop() }()
	l := &reloader{Reloads: Reloads{Source: d.source, report: d}, r: r, file: r.file, known: map[string]bool{}}
	put(t, file, fmt.Sprintf(parrot, "one")+"server: {http: \"127.0.0.1:9\", store: \"sqlite:x.db\", tls: {terminated_by_proxy: true}, log: {format: json}, retention: 24h}\n")
	l.reload(t.Context(), false)
	if want := "takes effect at the next start: server.http, server.retention"; len(says) != 2 || says[1] != want {
		t.Errorf("says %q, want %q", says, want)
	}
}

// TestDevServesTheLongestEgressList has dev, which also allows the addresses of this machine, serve a file with as many
// entries of egress.allow as a file may have.
func TestDevServesTheLongestEgressList(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	fmt.Fprintf(&file, parrot+"server:\n  egress:\n    allow:\n", "one")
	for i := range 256 {
		fmt.Fprintf(&file, "    - 10.0.0.%d\n", i)
	}
	path := filepath.Join(t.TempDir(), "team.yaml")
	put(t, path, file.String())
	d := &Dev{Path: path, HTTP: "127.0.0.1:0", GRPC: Off, Log: zap.NewNop(), Say: t.Logf}
	r, err := d.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
}
