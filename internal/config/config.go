// Package config reads a configuration file and finds everything that is wrong
// with it at once: syntax, keys and values, references, expressions. What it
// returns can be built.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/guard"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

// Config is a file without faults, with all variables in place.
type Config struct {
	// File is the path as it was given.
	File string
	// Server is the content. Keys and addresses that come from the environment
	// are filled in.
	Server *teamv1.ServerConfig
	// Used are the ids of the agents and teams that are served: the teams and
	// what they reach, and agents for conformance kits; in a file without teams all
	// agents.
	Used map[string]bool
	// Scripts are the scripts of scripted models by model name.
	Scripts map[string]*scripted.Script
	// Schemas are the JSON Schema files that guardrails and agents name, by the
	// name that the file gives them.
	Schemas map[string]*guard.Schema

	dir     string
	scripts map[string][]byte    // the sources of Scripts
	schemas map[string][]byte    // the sources of Schemas
	lacking map[[2]string]string // by section and id: what it needs and is not there; none of it is used
	read    func(string) ([]byte, error)

	reordered []Reordered       // steps that follow others because of their place in the list
	additions map[string]string // by the id of an agent or team: the addition that it came with
	loader    Loader            // how it was read, and of what: With reads it again
	source    []byte
	document  *document // where it stands; nil when it was restored
	standIns            // what takes the place of its parts
}

// ReadFile reads a file that the configuration names, relative to it.
func (c *Config) ReadFile(name string) ([]byte, error) { return c.read(c.Path(name)) }

// Path is where a file that the configuration names is.
func (c *Config) Path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(c.dir, name)
}

// Same reports whether two configurations serve the same: content, scripts and
// schemas.
func (c *Config) Same(other *Config) bool {
	return proto.Equal(c.Server, other.Server) && maps.EqualFunc(c.scripts, other.scripts, bytes.Equal) &&
		maps.EqualFunc(c.schemas, other.schemas, bytes.Equal)
}

// Loader reads configurations. The zero value uses the files and the
// environment of the process.
type Loader struct {
	// Env looks a variable up; nil is os.LookupEnv.
	Env func(string) (string, bool)
	// Files holds the files; nil is the file system.
	Files fs.FS
	// StandIns take the place of what the file is connected to; nil is for none.
	StandIns *StandIns
	// Additions hold agents and teams that are served besides those of the file.
	Additions []Addition
}

// Find returns the file that a path means: itself, or in a folder team.yaml.
func (l Loader) Find(path string) (string, error) {
	info, err := l.stat(path)
	if err != nil {
		return "", unreadable(path, err)
	}
	if !info.IsDir() {
		return path, nil
	}
	for _, name := range []string{"team.yaml", "team.yml"} {
		if _, err := l.stat(filepath.Join(path, name)); err == nil {
			return filepath.Join(path, name), nil
		}
	}
	return "", Faults{{File: path, Message: "the folder holds no team.yaml", Hint: "name the file, or create team.yaml in it"}}
}

// Load reads a file, or the team.yaml of a folder. The error is Faults, all of
// the file's.
func (l Loader) Load(path string) (*Config, error) {
	path, err := l.Find(path)
	if err != nil {
		return nil, err
	}
	data, err := l.readFile(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return l.Parse(path, data)
}

// Parse is Load for a file whose content is known. Files it names are read
// relative to it.
func (l Loader) Parse(path string, data []byte) (*Config, error) {
	c := &Config{
		File: path, Used: map[string]bool{}, Scripts: map[string]*scripted.Script{}, scripts: map[string][]byte{},
		Schemas: map[string]*guard.Schema{}, schemas: map[string][]byte{}, dir: filepath.Dir(path), read: l.readFile,
		loader: l, source: data,
	}
	d := parse(path, data)
	if d.root == nil {
		return nil, tidy(d.faults)
	}
	for _, a := range l.Additions {
		d.add(a)
	}
	c.document, c.standIns = d, d.standIn(l.StandIns)
	d.shape(d.root, (&teamv1.ServerConfig{}).ProtoReflect().Descriptor())
	gaps := d.expand(d.root, nil, lookup{env: l.env(), file: c.ReadFile})
	server, err := d.decode()
	if err != nil {
		return nil, fmt.Errorf("checking %s: %w", path, err)
	}
	c.Server, c.additions, c.reordered = server, d.origins(), d.order(server)
	c.lack(gaps)
	d.foreign(server)
	k := &checker{document: d, Config: c, env: l.env(), gaps: gaps, presumed: map[string][]string{}}
	k.check()
	if len(d.faults) > 0 {
		return nil, tidy(d.faults)
	}
	c.playStandIns()
	return c, nil
}

func (l Loader) env() func(string) (string, bool) {
	if l.Env != nil {
		return l.Env
	}
	return os.LookupEnv
}

// maxFile bounds a file, in bytes.
const maxFile = 64 << 20

var (
	errIrregular = errors.New("no regular file")
	errTooLarge  = errors.New("too large")
)

// readFile reads a file of bounded size: a pipe or a device may have no end.
func (l Loader) readFile(path string) ([]byte, error) {
	switch info, err := l.stat(path); {
	case err != nil:
		return nil, err
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil, errIrregular
	case info.Size() > maxFile:
		return nil, errTooLarge
	}
	if l.Files != nil {
		return fs.ReadFile(l.Files, filepath.ToSlash(path))
	}
	return os.ReadFile(path) //nolint:gosec // the user names the file
}

func (l Loader) stat(path string) (fs.FileInfo, error) {
	if l.Files != nil {
		return fs.Stat(l.Files, filepath.ToSlash(path))
	}
	return os.Stat(path)
}

// unreadable is the fault of a file that cannot be read.
func unreadable(path string, err error) Faults {
	f := Fault{File: path, Message: "cannot be read", Hint: "check the path and its permissions"}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Message, f.Hint = "there is no such file", "check the path"
	case errors.Is(err, fs.ErrPermission):
		f.Message, f.Hint = "may not be read", "check its permissions"
	case errors.Is(err, errIrregular):
		f.Message, f.Hint = "is no regular file", "name a file, no pipe or device"
	case errors.Is(err, errTooLarge):
		f.Message, f.Hint = fmt.Sprintf("is larger than %d MiB", maxFile>>20), "split it"
	}
	return Faults{f}
}
