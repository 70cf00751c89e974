package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// repository returns the root of the repository.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// inRepository runs a command in the root of the repository and returns what it says.
func inRepository(t *testing.T, name string, args ...string) ([]byte, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = repository(t)
	return c.CombinedOutput()
}

// goCommand returns the go command; without one the test is skipped.
func goCommand(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("go")
	if err != nil {
		t.Skip("SKIP-MISSING-TOOL go: install Go, the version is in go.mod; see https://go.dev/doc/install")
	}
	return path
}

// executable is a file name for a program to be built.
func executable(t *testing.T, name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(t.TempDir(), name)
}

// buildServer builds the server as it is now.
func buildServer(t *testing.T) string {
	t.Helper()
	out := executable(t, "team-server")
	if log, err := inRepository(t, goCommand(t), "build", "-o", out, "./cmd/team-server"); err != nil {
		t.Fatalf("building the server: %v\n%s", err, log)
	}
	return out
}

// buildBuf returns buf: bin/buf where it has been built, else built now.
func buildBuf(t *testing.T) string {
	t.Helper()
	built := filepath.Join(repository(t), "bin", "buf")
	if _, err := os.Stat(built); err == nil {
		return built
	}
	out := executable(t, "buf")
	if log, err := inRepository(t, goCommand(t), "build", "-modfile=tools.mod", "-o", out, "github.com/bufbuild/buf/cmd/buf"); err != nil {
		t.Skipf("SKIP-MISSING-TOOL buf: run `make bin/buf` once with access to Go modules: %v\n%s", err, log)
	}
	return out
}

// fetchImports puts the definitions that ours imports in place.
func fetchImports(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(repository(t), "third_party", "google", "api", "annotations.proto")); err == nil {
		return
	}
	if log, err := inRepository(t, goCommand(t), "run", "./tools/protodeps"); err != nil {
		t.Skipf("SKIP-MISSING-TOOL third_party: run `make third_party` once with access to Go modules: %v\n%s", err, log)
	}
}
