package app

import (
	"crypto/sha256"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
)

// readings is a file system that keeps how its files were when they were read, also
// those that were looked for and not there. Safe for concurrent use.
type readings struct {
	mu     sync.Mutex
	prints map[string]string // by path; guarded by mu
}

var _ fs.StatFS = (*readings)(nil)

// Open implements fs.FS, but for any path of this machine.
func (r *readings) Open(name string) (fs.File, error) {
	r.keep(name)
	return os.Open(name) //nolint:gosec // the user names the file
}

// Stat implements fs.StatFS.
func (r *readings) Stat(name string) (fs.FileInfo, error) {
	r.keep(name)
	return os.Stat(name)
}

// keep keeps how a file is before it is read for the first time: what changes while it
// is read has changed since.
func (r *readings) keep(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.prints[name]; known {
		return
	}
	if r.prints == nil {
		r.prints = map[string]string{}
	}
	r.prints[name] = fingerprint(name)
}

// then is how the files were, by path.
func (r *readings) then() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.prints)
}

// now is then, as it is now.
func (r *readings) now() map[string]string {
	prints := r.then()
	for name := range prints {
		prints[name] = fingerprint(name)
	}
	return prints
}

// folders are those to watch: of each file its folder, or what there is of that.
func (r *readings) folders() map[string]bool {
	out := map[string]bool{}
	for name := range r.then() {
		dir := filepath.Dir(name)
		for up := filepath.Dir(dir); up != dir && !isFolder(dir); up = filepath.Dir(dir) {
			dir = up
		}
		out[dir] = true
	}
	return out
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// fingerprint tells contents apart, and what is no file that can be read.
func fingerprint(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err.Error()
	case !info.Mode().IsRegular():
		return info.Mode().Type().String() // a pipe would not end
	}
	f, err := os.Open(path) //nolint:gosec // the user names the file
	if err != nil {
		return err.Error()
	}
	defer f.Close() //nolint:errcheck // read only
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err.Error()
	}
	return string(sum.Sum(nil))
}
