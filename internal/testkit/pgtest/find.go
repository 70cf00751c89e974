package pgtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// binaries returns the directory with the programs of the PostgreSQL server. It skips t if there is
// none.
func binaries(t testing.TB) string {
	t.Helper()
	for _, dir := range folders() {
		if runnable(dir, "initdb") && runnable(dir, "postgres") {
			return dir
		}
	}
	t.Skip("SKIP-MISSING-TOOL: no PostgreSQL server: install the package postgresql, or set " + Variable)
	return ""
}

// folders returns the directories to search, newest versions first.
func folders() []string {
	var all []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// The server finds its files relative to its own path, so symlinks must be resolved.
		if path, err = filepath.EvalSymlinks(path); err == nil {
			all = append(all, filepath.Dir(path))
		}
	}
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is well-formed
	slices.SortFunc(versions, func(a, b string) int { return len(b) - len(a) + strings.Compare(b, a) })
	all = append(all, versions...)
	if out, err := exec.CommandContext(context.Background(), "pg_config", "--bindir").Output(); err == nil {
		all = append(all, strings.TrimSpace(string(out)))
	}
	return all
}

func runnable(dir, name string) bool {
	info, err := os.Stat(filepath.Join(dir, name))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Program returns the path of a program that is part of PostgreSQL, such as pg_dump. It skips t if
// there is none.
func Program(t testing.TB, name string) string {
	t.Helper()
	for _, dir := range folders() {
		if runnable(dir, name) {
			return filepath.Join(dir, name)
		}
	}
	t.Skip("SKIP-MISSING-TOOL: no " + name + ": install the package postgresql")
	return ""
}
