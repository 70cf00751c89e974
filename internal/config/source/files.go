package source

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"
)

// Files are the files from which documents are read. The zero value is the file system.
type Files struct {
	// FS holds the files; nil means the file system.
	FS fs.FS
	// Each is called for each file that was read; nil means that nothing is.
	Each func(path string, data []byte)
}

// maxFile is the maximum size of a file, in bytes.
const maxFile = 64 << 20

var (
	errIrregular = errors.New("not a regular file")
	errTooLarge  = errors.New("too large")
)

// Read reads a regular file of at most maxFile bytes: a pipe or a device may never end.
func (f Files) Read(path string) (data []byte, err error) {
	switch info, err := f.Stat(path); {
	case err != nil:
		return nil, err
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil, errIrregular
	case info.Size() > maxFile:
		return nil, errTooLarge
	}
	if f.FS != nil {
		data, err = fs.ReadFile(f.FS, filepath.ToSlash(path))
	} else {
		data, err = os.ReadFile(path) //nolint:gosec // the user names the file
	}
	if err == nil && f.Each != nil {
		f.Each(path, data)
	}
	return data, err
}

// Stat describes a file or folder.
func (f Files) Stat(path string) (fs.FileInfo, error) {
	if f.FS != nil {
		return fs.Stat(f.FS, filepath.ToSlash(path))
	}
	return os.Stat(path)
}

// Exists reports whether the path can be accessed.
func (f Files) Exists(path string) bool {
	_, err := f.Stat(path)
	return err == nil
}

// Decode decodes a file into a message of proto/team/v1 and checks it against the message's
// validation rules. Faults in the content are those of the document. Decode returns an error
// of type Faults if the file cannot be read or parsed, and another error if a validation rule
// itself is invalid.
func (f Files) Decode(path string, m proto.Message) (*Document, error) {
	data, err := f.Read(path)
	if err != nil {
		return nil, Faults{Unreadable(path, err)}
	}
	d := Parse(path, data)
	d.files = f
	if d.root == nil {
		return nil, d.Faults()
	}
	d.Shape(m)
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("checking %s: %w", path, err)
	}
	return d, nil
}

// Unreadable returns the fault for a file that cannot be read.
func Unreadable(path string, err error) Fault {
	f := Fault{File: path, Message: "cannot be read", Hint: "check the path and its permissions"}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Message, f.Hint = "the file does not exist", "check the path"
	case errors.Is(err, fs.ErrPermission):
		f.Message, f.Hint = "permission denied", "check its permissions"
	case errors.Is(err, errIrregular):
		f.Message, f.Hint = "is not a regular file", "name a file, not a pipe or device"
	case errors.Is(err, errTooLarge):
		f.Message, f.Hint = fmt.Sprintf("is larger than %d MiB", maxFile>>20), "split it"
	}
	return f
}

// pathFrom returns the path of a file to which another one refers.
func pathFrom(file, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(file), name)
}
