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

// binaries is the folder that holds the programs of PostgreSQL's server.
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

// folders are where to look, the newest version of a distribution's first.
func folders() []string {
	var all []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// The server looks for its files from where it lies, not from where it is linked.
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

// Program is the path of a program that comes with PostgreSQL, such as pg_dump.
// Skips t when there is none.
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
