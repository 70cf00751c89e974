package serve

import (
	"context"
	"errors"
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
	load   func(signaled bool) *readings    // reads them, after a signal or a change, and returns which it read
	signal <-chan os.Signal                 // each value causes a load
	files  bool                             // whether changes of the files do, too
	say    func(format string, args ...any) // reports what cannot be watched

	open func() (*fsnotify.Watcher, error) // nil means fsnotify.NewWatcher
}

// watch calls load after a signal, or when the content of a file that was read has changed, and then only once the
// files have remained unchanged for settle. It returns when ctx ends. watch observes folders rather than files,
// because files are often replaced by others of the same name; other changes in these folders have no effect. If
// the operating system refuses to watch, it goes on with signals only.
func watch(ctx context.Context, c watching) {
	w := c.watcher()
	defer func() {
		if c.files {
			_ = w.Close() // nothing is lost
		}
	}()
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
			return
		case <-c.signal:
			signaled = true
			arm()
		case <-w.Events:
			arm()
		case err := <-w.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				arm()
				break
			}
			_ = w.Close()
			w = c.withoutFiles(err)
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
				read, last = c.load(signaled), nil
				signaled = false
				arm() // the folders may differ, and files may have changed during load
			}
		}
	}
}

// watcher returns what watches files. It has no events if they have no effect or cannot be watched.
func (c *watching) watcher() *fsnotify.Watcher {
	if !c.files {
		return &fsnotify.Watcher{}
	}
	open := c.open
	if open == nil {
		open = fsnotify.NewWatcher
	}
	w, err := open()
	if err != nil {
		return c.withoutFiles(err)
	}
	return w
}

// withoutFiles reports that files cannot be watched, and returns a watcher without events in place of one.
func (c *watching) withoutFiles(err error) *fsnotify.Watcher {
	c.files = false
	then := "restart to detect them"
	if c.signal != nil {
		then = "send SIGHUP after a change, or restart"
	}
	c.say("file changes are not detected: %v; %s", err, then)
	return &fsnotify.Watcher{}
}

// folders returns the folders to watch, none if changes of files have no effect.
func (c watching) folders(read *readings) map[string]bool {
	if !c.files {
		return nil
	}
	return read.folders()
}
