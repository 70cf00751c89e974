package pgtest

import "syscall"

const (
	sharedMemory = "/dev/shm"
	// room is the space, in bytes, that must be free in memory. A server has up to 1 GB of log
	// (max_wal_size) beside its data, and two packages are tested at a time.
	room = 4 << 30
)

// memory returns the directory of a file system in memory, or "" if there is none with enough room.
func memory() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(sharedMemory, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < room { //nolint:gosec // a size is not negative
		return ""
	}
	return sharedMemory
}
