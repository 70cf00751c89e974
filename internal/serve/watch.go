package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long files must remain unchanged before they are read again: files are written in
// pieces, and mounted configuration swaps links.
const settle = 100 * time.Millisecond

// watch calls load when the content of a file that was read has changed and then remained unchanged
// for settle. It returns when ctx ends. load returns the files that it read. watch observes folders
// rather than files, because files are often replaced by others of the same name; other changes in
// these folders have no effect. say reports folders that cannot be watched.
func watch(ctx context.Context, read *readings, load func() *readings, say func(format string, args ...any)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching files: %w", err)
	}
	defer w.Close() //nolint:errcheck // nothing is lost
	unwatched := map[string]bool{}
	timer := time.NewTimer(0) // check for changes since the files were read
	defer timer.Stop()
	armed := true
	arm := func() {
		if !armed { // do not restart the timer: unrelated files may change continuously
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
				case errors.Is(err, fs.ErrNotExist): // deleted since folders was called
					arm()
				default:
					unwatched[folder] = true
					say("changes in %s are not detected: %v", folder, err)
				}
			}
			switch now := read.now(); {
			case maps.Equal(now, read.recorded()):
				last = nil
			case !maps.Equal(now, last):
				last = now
				arm()
			default:
				read, last = load(), nil
				arm() // the folders may differ, and files may have changed during load
			}
		}
	}
}
