package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// suite describes how the kit for one version of the protocol is run.
type suite struct {
	line   string // version of the protocol
	branch string // of the kit
	has    string // a folder that identifies the kit
	file   string // the configuration of team-server; "" means the agent for kits
	fresh  bool   // restart the server, with an empty store, for each test
	env    []string
	runs   []playing
}

// playing is one run of the kit's tests with pytest. The text URL in its arguments is
// replaced by the URL of the server.
type playing struct {
	name string
	args []string
}

// playTime is the timeout of one run of a kit.
const playTime = 20 * time.Minute

var suites = []suite{
	{
		line: "1.0", branch: "1.0-dev", has: filepath.Join("tests", "compatibility"), fresh: true,
		runs: []playing{{"all bindings", []string{"tests/compatibility/", "--sut-host=URL"}}},
	},
	{
		line: "0.3", branch: "0.3.x", has: filepath.Join("tests", "mandatory"), env: []string{"TCK_STREAMING_TIMEOUT=2.0"},
		// The kit expects tasks that are still open after the first answer.
		file: "version: v1\nagents:\n  kit: {description: Asks once., scripted: {steps: [{ask: \"What else?\"}, {echo: true}]}}\nserver: {default_agent: kit}\n",
		runs: []playing{
			{"jsonrpc", []string{"tests/mandatory/", "tests/optional/", "--sut-url=URL", "--test-scope=all", "--transports=jsonrpc"}},
			{"rest", []string{"tests/mandatory/protocol/", "tests/optional/", "--sut-url=URL", "--test-scope=all", "--transports=rest"}},
		},
	},
}

func findSuite(kit string) (*suite, error) {
	for i := range suites {
		if info, err := os.Stat(filepath.Join(kit, suites[i].has)); err == nil && info.IsDir() {
			return &suites[i], nil
		}
	}
	return nil, fmt.Errorf("%s is not a kit that is known here: want a folder tests/compatibility (branch 1.0-dev) or tests/mandatory (branch 0.3.x)", kit)
}

// identify returns which kit a folder holds: its commit or, outside of git, the SHA-256
// of its files. A checkout with changes is an error.
func identify(ctx context.Context, kit string) (string, error) {
	root := kit
	if filepath.Base(kit) == "acts" { // a folder in a checkout
		root = filepath.Join(kit, "..", "..")
	}
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		changes, err := output(ctx, kit, "git", "status", "--porcelain", ".")
		if err != nil {
			return "", err
		}
		if changes != "" {
			return "", fmt.Errorf("%s has changes; the kit must be as its makers published it:\n%s", kit, changes)
		}
		commit, err := output(ctx, kit, "git", "rev-parse", "HEAD")
		return "commit " + commit, err
	}
	sum := sha256.New()
	err := filepath.WalkDir(kit, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n", strings.TrimPrefix(path, kit), len(b))
		sum.Write(b)
		return err
	})
	return fmt.Sprintf("files with the SHA-256 %x", sum.Sum(nil)), err
}

// place is the folder and the environment in which a kit is run.
type place struct {
	dir     string // the copy of the kit
	reports string
	python  string
	version string // of Python and pytest
}

// prepare copies the kit and installs the packages that it needs, unless a Python is
// given.
func (s *suite) prepare(ctx context.Context, kit, work, python string) (place, error) {
	at := place{dir: filepath.Join(work, "kit"), reports: work, python: python}
	if err := os.RemoveAll(at.dir); err != nil {
		return at, err
	}
	if err := os.CopyFS(at.dir, os.DirFS(kit)); err != nil {
		return at, err
	}
	if python == "" {
		var err error
		if at.python, err = packages(ctx, at.dir, filepath.Join(work, "python")); err != nil {
			return at, err
		}
	}
	var err error
	at.version, err = output(ctx, at.dir, at.python, "-c", `import platform, pytest; print("Python", platform.python_version() + ", pytest", pytest.__version__)`)
	return at, err
}

// packages installs the dependencies in the kit's pyproject.toml into a virtual
// environment.
func packages(ctx context.Context, kit, env string) (string, error) {
	found, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("python3 is missing; install Python 3.11 or newer with venv and pip, see https://www.python.org: %w", err)
	}
	const list = `import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]))`
	wanted, err := output(ctx, kit, found, "-c", list)
	if err != nil {
		return "", err
	}
	python, done := filepath.Join(env, "bin", "python"), filepath.Join(env, "installed.txt")
	if have, err := os.ReadFile(done); err == nil && string(have) == wanted {
		return python, nil
	}
	if _, err := output(ctx, kit, found, "-m", "venv", "--clear", env); err != nil {
		return "", err
	}
	if _, err := output(ctx, kit, python, append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, strings.Split(wanted, "\n")...)...); err != nil {
		return "", err
	}
	return python, os.WriteFile(done, []byte(wanted), 0o600)
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, said.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// plugin restarts the server before each test.
//
//go:embed fresh.py
var plugin []byte

// play runs the kit and copies the output of pytest to out.
func (s *suite) play(ctx context.Context, out io.Writer, at place, teamServer, kitAgent string) (map[string]string, error) {
	served := []string{kitAgent}
	if s.file != "" {
		file := filepath.Join(at.reports, "team.yaml")
		if err := os.WriteFile(file, []byte(s.file), 0o600); err != nil {
			return nil, err
		}
		served = []string{teamServer, "dev", file}
	}
	if err := os.WriteFile(filepath.Join(at.reports, "fresh.py"), plugin, 0o600); err != nil {
		return nil, err
	}
	results := map[string]string{}
	for _, p := range s.runs {
		srv, err := start(served...)
		if err != nil {
			return nil, err
		}
		err = s.playOne(ctx, out, at, srv, p, results)
		if err := errors.Join(err, srv.stop()); err != nil {
			return nil, fmt.Errorf("running %s: %w", p.name, err)
		}
	}
	return results, nil
}

func (s *suite) playOne(ctx context.Context, out io.Writer, at place, srv *server, p playing, results map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, playTime)
	defer cancel()
	xml := filepath.Join(at.reports, "report of "+p.name+".xml")
	if err := os.RemoveAll(xml); err != nil {
		return err
	}
	args := []string{"-m", "pytest", "-q", "--tb=short", "--junitxml=" + xml}
	if s.fresh {
		args = append(args, "-p", "fresh")
	}
	for _, a := range p.args {
		args = append(args, strings.ReplaceAll(a, "URL", srv.url()))
	}
	c := exec.CommandContext(ctx, at.python, args...)
	c.Dir, c.Stdout, c.Stderr = at.dir, out, out
	c.Env = append(os.Environ(), "PYTHONPATH="+at.reports, "FRESH_SERVER="+srv.control())
	c.Env = append(c.Env, s.env...)
	fmt.Fprintf(out, "=== %s: %s %s\n", p.name, at.python, strings.Join(args, " "))
	// pytest exits with 1 if tests fail; the report names them.
	var exit *exec.ExitError
	if err := c.Run(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return err
	}
	prefix := ""
	if len(s.runs) > 1 {
		prefix = p.name + " "
	}
	return readReport(xml, prefix, results)
}
