package serve

import (
	"crypto/sha256"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
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

// folders returns the folders to watch: of each file, and of each link on the way to it, the folder or its nearest
// existing ancestor.
func (r *readings) folders() map[string]bool {
	out := map[string]bool{}
	for name := range r.recorded() {
		for _, dir := range foldersOf(name) {
			for up := filepath.Dir(dir); up != dir && !isFolder(dir); up = filepath.Dir(dir) {
				dir = up
			}
			out[dir] = true
		}
	}
	return out
}

// maxLinks is how many links are followed on the way to a file; Linux follows as many.
const maxLinks = 40

// foldersOf returns the folder of a file. If links lead to the file, it also returns the folders of these links, and the
// one that the file is in: a change in any of them may change the file.
func foldersOf(name string) []string {
	dirs := []string{filepath.Dir(name)}
	at, err := filepath.Abs(name)
	if err != nil {
		return dirs
	}
	at, below := splitVolume(at)
	rest, links := namesOf(below), 0
	for len(rest) > 0 && links < maxLinks {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(next)
		if err != nil { // no link, or nothing is there
			at = next
			continue
		}
		links++
		dirs = append(dirs, at)
		if filepath.IsAbs(target) {
			at, target = splitVolume(target)
		}
		rest = append(namesOf(target), rest...)
	}
	if links > 0 {
		dirs = append(dirs, filepath.Dir(filepath.Join(append([]string{at}, rest...)...)))
	}
	return dirs
}

// splitVolume splits an absolute path after its root.
func splitVolume(path string) (root, rest string) {
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), path[len(volume):]
}

// namesOf returns the names that a path consists of. Unlike filepath.Clean it keeps "..", which after a link does not lead
// back.
func namesOf(path string) []string {
	return strings.FieldsFunc(filepath.ToSlash(path), func(r rune) bool { return r == '/' })
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
