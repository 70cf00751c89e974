package serve

import (
	"crypto/sha256"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
)

// readings is a file system that records a fingerprint of each file when it is first opened or
// looked up, even if the file does not exist. It is safe for concurrent use.
type readings struct {
	mu     sync.Mutex
	prints map[string]string // fingerprints by path; guarded by mu
}

var _ fs.StatFS = (*readings)(nil)

// Open implements fs.FS, except that it accepts any path of the machine.
func (r *readings) Open(name string) (fs.File, error) {
	r.record(name)
	return os.Open(name) //nolint:gosec // the user names the file
}

// Stat implements fs.StatFS.
func (r *readings) Stat(name string) (fs.FileInfo, error) {
	r.record(name)
	return os.Stat(name)
}

// record records the fingerprint of a file before it is read for the first time, so that a change
// during the read is noticed.
func (r *readings) record(name string) {
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

// recorded returns the recorded fingerprints by path.
func (r *readings) recorded() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.prints)
}

// now returns the current fingerprints of the recorded files.
func (r *readings) now() map[string]string {
	prints := r.recorded()
	for name := range prints {
		prints[name] = fingerprint(name)
	}
	return prints
}

// folders returns the folders to watch: that of each file, or its nearest existing ancestor.
func (r *readings) folders() map[string]bool {
	out := map[string]bool{}
	for name := range r.recorded() {
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

// fingerprint identifies the content of a file. For a path that is not a readable regular file, it
// describes what is there instead.
func fingerprint(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err.Error()
	case !info.Mode().IsRegular():
		return info.Mode().Type().String() // reading a pipe may never end
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
