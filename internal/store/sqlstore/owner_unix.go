//go:build unix

package sqlstore

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// giveToFolder gives a file that was just made the owner and the group of a folder, if this process runs as root: the
// user of the server could not open it otherwise.
func giveToFolder(file, folder string) (err error) {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(folder)
	if err != nil {
		return err
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	if !ok || of.Uid == 0 && of.Gid == 0 {
		return nil
	}
	// The user of the folder may put another file in place of the new one: only a file of root with a single name is
	// given away.
	f, err := os.OpenFile(filepath.Clean(file), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	if info, err = f.Stat(); err != nil {
		return err
	}
	if is, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() || is.Uid != 0 || is.Nlink != 1 {
		return nil
	}
	if err := f.Chown(int(of.Uid), int(of.Gid)); err != nil {
		return fmt.Errorf("give %s the owner of its folder: %w", file, err)
	}
	return nil
}
