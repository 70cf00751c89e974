package app

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a folder must be quiet before its files are read anew:
// editors rename, and mounted configuration swaps links.
const settle = 200 * time.Millisecond

// Watch calls changed whenever something in one of the folders has changed and
// come to rest, until ctx ends. Folders are watched, not files, since a file is
// often replaced by another one of its name.
func Watch(ctx context.Context, folders []string, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching files: %w", err)
	}
	defer w.Close() //nolint:errcheck // nothing is lost
	for _, folder := range folders {
		if err := w.Add(folder); err != nil {
			return fmt.Errorf("watching %s: %w", folder, err)
		}
	}
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-w.Events:
			if !ok {
				return nil
			}
			if ev.Op != fsnotify.Chmod {
				timer.Reset(settle)
			}
		case err, ok := <-w.Errors:
			if !ok {
				return nil
			}
			return fmt.Errorf("watching files: %w", err)
		case <-timer.C:
			changed()
		}
	}
}

// Folders returns the folders of files, each once.
func Folders(files ...string) []string {
	var out []string
	seen := map[string]bool{}
	for _, f := range files {
		if dir := filepath.Dir(f); !seen[dir] {
			seen[dir] = true
			out = append(out, dir)
		}
	}
	return out
}
