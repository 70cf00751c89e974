package db

import "syscall"

// permissions reports whether files have permissions for other users.
const permissions = true

// remoteTypes are the types of file systems that are not local, by their number in statfs(2).
var remoteTypes = map[int64]string{
	0x6969: "nfs", 0x517b: "smb", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x65735546: "fuse", 0x01021997: "9p", 0x00c36400: "ceph", 0x5346414f: "afs",
}

// diskOf returns the bytes that are free for the user on the disk of a folder, and the type of its file system if
// that is not local.
func diskOf(folder string) (free uint64, remote string, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err != nil {
		return 0, "", err
	}
	return fs.Bavail * uint64(fs.Bsize), remoteTypes[int64(fs.Type)], nil //nolint:gosec,unconvert // a size is not negative; the type differs by platform
}

// writable reports whether the user of this process may write to a folder.
func writable(folder string) bool { return syscall.Access(folder, 2) == nil } // W_OK
