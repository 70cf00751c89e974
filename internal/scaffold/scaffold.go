// Package scaffold writes the files with which a project begins: a configuration, the script of its model, tests, and
// what they need beside them; or the protos for an agent in another language.
package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentteams/team-server/api"
	"github.com/agentteams/team-server/examples"
	"github.com/agentteams/team-server/internal/config/source"
)

// Template is what a project can begin with.
type Template struct {
	Name string
	// About says what it shows.
	About string
	// Team is a team of it, and Text a message for that team.
	Team, Text string
}

// Templates returns the templates, the default one first.
func Templates() []Template {
	return []Template{
		{"coordinator", "a leader, which is a model, calls specialists as tools", "analysis", "A kettle that calls you when it boils"},
		{"workflow", "steps in order, some at the same time, one repeated, and one that asks a person", "release", "version 2"},
		{"supervisor", "rules choose who works next, else a model", "newsroom", "Write about tides"},
		{"swarm", "members hand over to each other", "helpdesk", "My invoice is wrong"},
		{"support-desk", "specialists who keep their conversations, and refunds that a person approves; needs Python 3", "desk", "My kettle is broken"},
		{"research", "a plan, readers at the same time, and a critic who must accept the report", "research", "tides"},
	}
}

// Find returns the template with a name; "" is the default one.
func Find(name string) (Template, error) {
	all := Templates()
	if name == "" {
		return all[0], nil
	}
	var names []string
	for _, t := range all {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return Template{}, fmt.Errorf("there is no template %q; %s", name, source.Suggest(name, names))
}

// environment is the content of .env.example.
const environment = `# Copy this file to .env: commands that read team.yaml read it too, but serve and doctor do not.
# The key of a model, for a file with: models: {real: {provider: openai, name: MODEL}}
#OPENAI_API_KEY=
# For another endpoint of the OpenAI API, such as http://127.0.0.1:11434/v1:
#OPENAI_BASE_URL=
`

// realModel says in the configuration how to use a real model.
const realModel = "  # A real model in its place: {provider: openai, name: MODEL}, with OPENAI_API_KEY in .env. See .env.example.\n"

// Write writes the files of a template into a folder, which is made if it does not exist, and returns their names in
// order. It changes no file that exists: the error names the first one, and then nothing was written.
func Write(t Template, folder string) ([]string, error) {
	files, err := t.files()
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if file := filepath.Join(folder, name); exists(file) {
			return nil, fmt.Errorf("%s exists already; name a folder that has no such file, or remove it", file)
		}
	}
	return write(folder, files)
}

// WriteProtos writes the protos of the Agent service, and what they import, into a folder, which is made if it does not
// exist, and returns their names in order. Unless replace is set, it changes no file that has other content: the error names
// one, and then nothing was written.
func WriteProtos(folder string, replace bool) ([]string, error) {
	files := map[string][]byte{}
	protos, err := fs.Sub(api.Protos, "protos")
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(protos, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[name], err = fs.ReadFile(protos, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(folder, name)
		if old, err := os.ReadFile(file); !replace && exists(file) && (err != nil || !bytes.Equal(old, files[name])) { //nolint:gosec // the user names the folder
			return nil, fmt.Errorf("%s exists already and is different; name another folder, or replace it with --force", file)
		}
	}
	return write(folder, files)
}

// exists reports whether there is anything at a path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// write writes files below a folder and returns their names in order.
func write(folder string, files map[string][]byte) ([]string, error) {
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return nil, err
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be a link to a file elsewhere
			return nil, err
		}
		if err := os.WriteFile(file, files[name], 0o600); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// files returns the files of a template by name, as they are in a folder of their own.
func (t Template) files() (map[string][]byte, error) {
	files := map[string][]byte{".env.example": []byte(environment), "team.schema.json": api.TeamSchema, "test.schema.json": api.TestSchema}
	for _, name := range []string{"team.yaml", "team.script.yaml", "team_test.yaml", "real.yaml", "shop.py"} {
		text, err := examples.Templates.ReadFile(path.Join(t.Name, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		own := strings.ReplaceAll(string(text), "$schema=../../api/schema/", "$schema=")
		if name == "team.yaml" {
			own = strings.Replace(own, "models:\n", "models:\n"+realModel, 1)
			if !strings.HasPrefix(own, "# yaml-language-server") {
				own = "# yaml-language-server: $schema=team.schema.json\n" + own
			}
		}
		files[name] = []byte(own)
	}
	return files, nil
}
