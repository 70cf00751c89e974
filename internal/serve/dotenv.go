package serve

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/agentteams/team-server/internal/config/source"
)

// Env holds the variables of a .env file. Variables of the process take precedence.
type Env map[string]string

// variableName matches the name of a variable.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ReadDotEnv reads a .env file: lines of the form NAME=value, optionally with export before the
// name and quotes around the value, and # comments. A file that does not exist is treated as empty.
// Faults are returned as source.Faults; they do not quote the file, which holds secrets.
func ReadDotEnv(path string) (Env, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the user's own file
	if errors.Is(err, fs.ErrNotExist) {
		return Env{}, nil
	}
	if err != nil {
		return nil, source.Faults{source.Unreadable(path, err)}
	}
	env, faults := Env{}, source.Faults{}
	for i, line := range strings.Split(strings.TrimPrefix(string(data), "\ufeff"), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name = strings.TrimSpace(name)
		if !ok || !variableName.MatchString(name) {
			faults = append(faults, source.Fault{
				File: path, Line: i + 1, Col: 1, Message: "expected NAME=value", Hint: "a name consists of letters, digits and _, and does not begin with a digit",
			})
			continue
		}
		if value, ok = unquote(strings.TrimSpace(value)); !ok {
			faults = append(faults, source.Fault{
				File: path, Line: i + 1, Col: 1, Message: "the closing quote is missing",
				Hint: "close the quote at the end of the line; put comments on lines of their own",
			})
			continue
		}
		env[name] = value
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return env, nil
}

// unquote returns a value without the quotes around it. ok is false if the closing quote is
// missing.
func unquote(s string) (value string, ok bool) {
	if s == "" || s[0] != '"' && s[0] != '\'' {
		return s, true
	}
	if len(s) < 2 || s[len(s)-1] != s[0] {
		return "", false
	}
	return s[1 : len(s)-1], true
}

// Lookup returns a variable of the process, or else of the .env file.
func (e Env) Lookup(name string) (string, bool) {
	if v, ok := os.LookupEnv(name); ok {
		return v, true
	}
	v, ok := e[name]
	return v, ok
}
