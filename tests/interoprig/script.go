package interoprig

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"
)

const (
	installTime = 5 * time.Minute
	scriptTime  = 2 * time.Minute
)

// skip skips a test because a tool is not installed, and records that the matrix is incomplete.
func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	mu.Lock()
	without = true
	mu.Unlock()
	t.Skipf("SKIP-MISSING-TOOL "+format, args...)
}

// Tool returns the path of a command. It skips the test if the command is not installed.
func Tool(t *testing.T, name, hint string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		skip(t, "%s: %s", name, hint)
	}
	return path
}

// Script runs a program that performs the steps as a client. The program prints a line of JSON
// for each step: its name and, if it failed or the client lacks it, the reason. Script runs a
// subtest for each step.
func (c Column) Script(t *testing.T, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), scriptTime)
	defer cancel()
	run := exec.CommandContext(ctx, program, args...) //nolint:gosec // the repository's own script
	var said bytes.Buffer
	run.Stderr = &said
	out, err := run.Output()
	var played []string
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var step struct{ Step, Error, Lacks, Partly string }
		if json.Unmarshal(lines.Bytes(), &step) != nil || step.Step == "" {
			t.Logf("%s", lines.Bytes())
			continue
		}
		played = append(played, step.Step)
		if step.Lacks != "" {
			c.Lacks(t, step.Step, step.Lacks)
			continue
		}
		t.Run(step.Step, func(t *testing.T) {
			c.Records(t, step.Step)
			if step.Partly != "" {
				c.Limited(step.Step, step.Partly)
			}
			if step.Error != "" {
				t.Error(step.Error)
			}
		})
	}
	if err != nil || !slices.Equal(played, Steps) {
		t.Errorf("error %v, played are %v, want %v\n%s", err, played, Steps, said.Bytes())
	}
}

// Node returns the path of node, after it has installed the packages of the lock file in the
// folder js. It skips the test if Node.js is not installed.
func Node(t *testing.T) string {
	t.Helper()
	const hint = "install Node.js 20 or newer, with npm; see https://nodejs.org"
	node, npm := Tool(t, "node", hint), Tool(t, "npm", hint)
	install(t, filepath.Join("js", "package-lock.json"), filepath.Join("js", "node_modules"),
		[]string{npm, "--prefix", "js", "ci", "--ignore-scripts", "--no-audit", "--no-fund"})
	return node
}

// Python returns the path of a Python that has the packages of python/requirements.txt. It skips
// the test if there is no Python 3.10 or newer.
func Python(t *testing.T) string {
	t.Helper()
	const hint = "install Python 3.10 or newer, with venv and pip (python3, python3-venv); see https://www.python.org"
	python := Tool(t, "python3", hint)
	if err := exec.CommandContext(t.Context(), python, "-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))").Run(); err != nil { //nolint:gosec // found in the path
		skip(t, "python3: %s", hint)
	}
	module, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	env := Repository(t, "bin", filepath.Base(module), "python")
	installed := filepath.Join(env, "bin", "python")
	install(t, filepath.Join("python", "requirements.txt"), env,
		[]string{python, "-m", "venv", "--clear", env},
		[]string{installed, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", "--require-hashes", "-r", filepath.Join("python", "requirements.txt")})
	return installed
}

// unreachable matches the output of an installer that cannot reach its registry.
var unreachable = regexp.MustCompile(`ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|ETIMEDOUT|from versions: none|(?i:failed to establish a new connection|name resolution|connection refused|timed out)`)

// install runs commands, unless they have been run for the same content of the lock file. It
// skips the test with SKIP-MISSING-TOOL if a registry cannot be reached.
func install(t *testing.T, lock, into string, commands ...[]string) {
	t.Helper()
	want, err := os.ReadFile(lock) //nolint:gosec // the repository's own
	if err != nil {
		t.Fatal(err)
	}
	done := filepath.Join(into, ".installed")
	if have, err := os.ReadFile(done); err == nil && bytes.Equal(have, want) { //nolint:gosec // written below
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTime)
	defer cancel()
	for _, c := range commands {
		if out, err := exec.CommandContext(ctx, c[0], c[1:]...).CombinedOutput(); err != nil && unreachable.Match(out) { //nolint:gosec // installers
			skip(t, "%s: run once with access to the registry: %v\n%s", lock, err, out)
		} else if err != nil {
			t.Fatalf("installing %s: %v\n%s", lock, err, out)
		}
	}
	if err := os.WriteFile(done, want, 0o600); err != nil { //nolint:gosec // the module's own
		t.Fatal(err)
	}
}

// Pinned returns the version of a package that a file of the module pins.
func Pinned(t *testing.T, file, name string) string {
	t.Helper()
	b, err := os.ReadFile(file) //nolint:gosec // the repository's own
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(regexp.QuoteMeta(name) + `[^\d\n]*(\d+\.\d+\.\d+)`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("%s pins no %s", file, name)
	}
	return string(m[1])
}
