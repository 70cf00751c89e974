package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long files must remain unchanged before they are read again: files are written in
// pieces, and mounted configuration swaps links.
const settle = 100 * time.Millisecond

// watching says what watch waits for, and what it does then.
type watching struct {
	read   *readings                        // the files that were read
	load   func() *readings                 // reads them, and returns which it read
	signal <-chan os.Signal                 // each value causes a load
	files  bool                             // whether changes of the files do, too
	say    func(format string, args ...any) // reports folders that cannot be watched
}

// watch calls load after a signal, or when the content of a file that was read has changed, and then only once the
// files have remained unchanged for settle. It returns when ctx ends. watch observes folders rather than files,
// because files are often replaced by others of the same name; other changes in these folders have no effect.
func watch(ctx context.Context, c watching) error {
	w := &fsnotify.Watcher{} // has no events
	if c.files {
		var err error
		if w, err = fsnotify.NewWatcher(); err != nil {
			return fmt.Errorf("watching files: %w", err)
		}
		defer w.Close() //nolint:errcheck // nothing is lost
	}
	read, signaled, unwatched := c.read, false, map[string]bool{}
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
		case <-c.signal:
			signaled = true
			arm()
		case <-w.Events:
			arm()
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watching files: %w", err)
			}
			arm()
		case <-timer.C:
			armed = false
			for folder := range c.folders(read) {
				switch err := w.Add(folder); {
				case err == nil || unwatched[folder]:
				case errors.Is(err, fs.ErrNotExist): // deleted since folders was called
					arm()
				default:
					unwatched[folder] = true
					c.say("changes in %s are not detected: %v", folder, err)
				}
			}
			switch now := read.now(); {
			case !signaled && (!c.files || maps.Equal(now, read.recorded())):
				last = nil
			case !maps.Equal(now, last):
				last = now
				arm()
			default:
				signaled = false
				read, last = c.load(), nil
				arm() // the folders may differ, and files may have changed during load
			}
		}
	}
}

// folders returns the folders to watch, none if changes of files have no effect.
func (c watching) folders(read *readings) map[string]bool {
	if !c.files {
		return nil
	}
	return read.folders()
}
