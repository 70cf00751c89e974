package app

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/agentteams/team-server/internal/config"
)

// Env is the environment of the process, and behind it a .env file.
type Env map[string]string

// dotEnv is the file that dev, run, validate and test read variables from; serve does
// not read it.
const dotEnv = ".env"

// withDotEnv returns a loader that reads variables from the process and from .env in
// the working folder.
func withDotEnv() (config.Loader, error) {
	env, err := ReadDotEnv(dotEnv)
	return config.Loader{Env: env.Lookup}, err
}

// ReadDotEnv reads a .env file: lines NAME=value, # comments, an optional
// export, quotes around a value. A file that does not exist is empty.
func ReadDotEnv(path string) (Env, error) {
	f, err := os.Open(path) //nolint:gosec // the user's own file
	if errors.Is(err, fs.ErrNotExist) {
		return Env{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	defer f.Close() //nolint:errcheck // read only
	env := Env{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !ok {
			return nil, fmt.Errorf("%s:%d: expected NAME=value", path, n)
		}
		env[strings.TrimSpace(name)] = unquote(strings.TrimSpace(value))
	}
	return env, lines.Err()
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// Lookup returns a variable: the process's own comes first.
func (e Env) Lookup(name string) (string, bool) {
	if v, ok := os.LookupEnv(name); ok {
		return v, true
	}
	v, ok := e[name]
	return v, ok
}
