package scenario

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentteams/team-server/internal/config/source"
)

// IsTest reports whether the name of a file is that of a test file.
func IsTest(path string) bool {
	return strings.HasSuffix(path, fileSuffix) || strings.HasSuffix(path, "_test.yml")
}

// Find returns the test files for paths, sorted: the files themselves, and the test files in
// folders and their subfolders. Names that begin with "." or "_", testdata and node_modules are
// skipped. The error is source.Faults for paths without test files.
func Find(paths ...string) ([]string, error) {
	var files []string
	var faults source.Faults
	for _, path := range paths {
		found, err := find(path)
		switch {
		case err != nil:
			faults = append(faults, source.Unreadable(path, err))
		case len(found) == 1 && !IsTest(found[0]):
			faults = append(faults, source.Fault{File: path, Message: "not a test file", Hint: "name a file that ends in " + fileSuffix + ", or the folder it is in"})
		case len(found) == 0:
			faults = append(faults, source.Fault{File: path, Message: "the folder contains no test file", Hint: "create NAME" + fileSuffix + " beside team.yaml, or name a file"})
		}
		files = append(files, found...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

func find(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != path && isSkipped(d.Name()):
			return fs.SkipDir
		case d.Type().IsRegular() && IsTest(file):
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

func isSkipped(folder string) bool {
	return strings.HasPrefix(folder, ".") || strings.HasPrefix(folder, "_") || folder == "testdata" || folder == "node_modules"
}
