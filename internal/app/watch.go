package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long files must stay as they are before they are read anew: they are
// written in pieces, and mounted configuration swaps links.
const settle = 100 * time.Millisecond

// watch calls load whenever what was read has another content and that has come to
// rest, until ctx ends; load returns what it read itself. Folders are watched, not
// files, since a file is often replaced by another one of its name; what else happens
// in them neither calls load nor keeps it from being called. say tells which folders
// cannot be watched.
func watch(ctx context.Context, read *readings, load func() *readings, say func(format string, args ...any)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching files: %w", err)
	}
	defer w.Close() //nolint:errcheck // nothing is lost
	unwatched := map[string]bool{}
	timer := time.NewTimer(0) // what changed since it was read is seen too
	defer timer.Stop()
	armed := true
	arm := func() {
		if !armed { // not anew: other files may change all the time
			timer.Reset(settle)
			armed = true
		}
	}
	var last map[string]string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events:
			arm()
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watching files: %w", err)
			}
			arm()
		case <-timer.C:
			armed = false
			for folder := range read.folders() {
				switch err := w.Add(folder); {
				case err == nil || unwatched[folder]:
				case errors.Is(err, fs.ErrNotExist): // it is gone meanwhile
					arm()
				default:
					unwatched[folder] = true
					say("changes in %s are not noticed: %v", folder, err)
				}
			}
			switch now := read.now(); {
			case maps.Equal(now, read.then()):
				last = nil
			case !maps.Equal(now, last):
				last = now
				arm()
			default:
				read, last = load(), nil
				arm() // there may be other folders, and changes meanwhile
			}
		}
	}
}
