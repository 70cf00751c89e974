package scenario

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentteams/team-server/internal/config"
)

// IsTest reports whether a file is a test file, by its name.
func IsTest(path string) bool {
	return strings.HasSuffix(path, Suffix) || strings.HasSuffix(path, "_test.yml")
}

// Find returns the test files that paths mean: files themselves, and those in
// folders and the folders in these, sorted. What begins with . or _, testdata
// and node_modules are left out. The error is config.Faults of paths without any.
func Find(paths ...string) ([]string, error) {
	var files []string
	var faults config.Faults
	for _, path := range paths {
		found, err := find(path)
		switch {
		case err != nil:
			faults = append(faults, config.Unreadable(path, err))
		case len(found) == 1 && !IsTest(found[0]):
			faults = append(faults, config.Fault{File: path, Message: "this is no test file", Hint: "name one that ends in " + Suffix + ", or the folder it is in"})
		case len(found) == 0:
			faults = append(faults, config.Fault{File: path, Message: "the folder holds no test file", Hint: "create NAME" + Suffix + " beside team.yaml, or name a file"})
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
		case d.IsDir() && file != path && leftOut(d.Name()):
			return fs.SkipDir
		case d.Type().IsRegular() && IsTest(file):
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

func leftOut(folder string) bool {
	return strings.HasPrefix(folder, ".") || strings.HasPrefix(folder, "_") || folder == "testdata" || folder == "node_modules"
}
