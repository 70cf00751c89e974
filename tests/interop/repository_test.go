package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/agentteams/team-server/tests/interoprig"
)

// inRepository runs a command in the root of the repository and returns what it says.
func inRepository(t *testing.T, name string, args ...string) ([]byte, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = interoprig.Repository(t)
	return c.CombinedOutput()
}

// goCommand returns the go command; without one the test is skipped.
func goCommand(t *testing.T) string {
	t.Helper()
	return interoprig.Tool(t, "go", "install Go, the version is in go.mod; see https://go.dev/doc/install")
}

// executable is a file name for a program to be built.
func executable(t *testing.T, name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(t.TempDir(), name)
}

// buildBuf returns buf: bin/buf where it has been built, else built now.
func buildBuf(t *testing.T) string {
	t.Helper()
	built := filepath.Join(interoprig.Repository(t), "bin", "buf")
	if _, err := os.Stat(built); err == nil {
		return built
	}
	out := executable(t, "buf")
	if log, err := inRepository(t, goCommand(t), "build", "-modfile=tools/modules/tools.mod", "-o", out, "github.com/bufbuild/buf/cmd/buf"); err != nil {
		t.Skipf("SKIP-MISSING-TOOL buf: run `make bin/buf` once with access to Go modules: %v\n%s", err, log)
	}
	return out
}

// fetchImports puts the definitions that ours imports in place.
func fetchImports(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(interoprig.Repository(t), "third_party", "google", "api", "annotations.proto")); err == nil {
		return
	}
	if log, err := inRepository(t, goCommand(t), "run", "./tools/protodeps"); err != nil {
		t.Skipf("SKIP-MISSING-TOOL third_party: run `make third_party` once with access to Go modules: %v\n%s", err, log)
	}
}
