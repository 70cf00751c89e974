// Package config reads a configuration file and reports everything that is wrong with it at once:
// syntax, keys, values, references and expressions. A Config it returns can be built.
package config

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/guard"
	"github.com/agentteams/team-server/pkg/model/scripted"
	"github.com/agentteams/team-server/pkg/secret"
)

// Config is a valid configuration file with all variables replaced. It must not be modified.
type Config struct {
	// File is the path as it was given to Load or Parse.
	File string
	// Server is the content. API keys and addresses that come from the environment are filled in. Secrets
	// are replaced, see Secret.
	Server *teamv1.ServerConfig
	// Used holds the ids of the agents and teams that are served: all teams, the default agent,
	// agents of additions, and what all of these refer to. In a file without teams, all agents are
	// served.
	Used map[string]bool
	// Scripts holds the scripts of scripted models, by model name.
	Scripts map[string]*scripted.Script
	// Schemas holds the JSON Schemas that guardrails and agents refer to, by the file name they
	// use.
	Schemas map[string]*guard.Schema

	dir         string
	scripts     map[string][]byte        // the sources of Scripts
	schemas     map[string][]byte        // the sources of Schemas
	trusted     map[string][]byte        // the files by which remote agents are verified: tls.ca and trusted_keys, by the name they have here
	secretFiles []string                 // paths of files that ${file:PATH} names for secrets
	missingByID map[[2]string]string     // by section and id: what an unused entry needs but is not available
	secrets     map[string]secret.Secret // those of Server, by what Server has in their place
	read        func(string) ([]byte, error)
	sums        map[string][sha256.Size]byte // of the files that Parse has read, by path

	additions map[string]string // by id of an agent or team: the name of the addition that defines it
	accounts  map[string]string // by id of an agent or team: the account that has made it by the API
	restored  map[string]bool   // after Restore: ids of the agents whose address does not come from the file
	loader    Loader            // With parses source again with this loader
	source    []byte
	document  *document // the parsed text; nil after Restore
	standIns            // replacements for models and agents
}

// ReadFile reads a file that the configuration refers to. A relative name is relative to the
// configuration file.
func (c *Config) ReadFile(name string) ([]byte, error) { return c.read(c.Path(name)) }

// Path returns the path of a file that the configuration refers to.
func (c *Config) Path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(c.dir, name)
}

// Digest returns the SHA-256 of the text of the file, in hex. Files to which it refers do not count.
func (c *Config) Digest() string {
	sum := sha256.Sum256(c.source)
	return hex.EncodeToString(sum[:])
}

// FilesDigest returns the SHA-256, in hex, of the output of sha256sum for the file and all files that were read for it.
// The output is sorted by name, and names are relative to the folder of the file. Files that ${file:PATH} names for
// secrets are left out, because a short secret could be guessed from the digest.
func (c *Config) FilesDigest() string {
	lines := []string{c.Digest() + "  " + filepath.Base(c.File) + "\n"}
	for path, sum := range c.sums {
		name, err := filepath.Rel(c.dir, path)
		if err != nil {
			name = path
		}
		if !slices.Contains(c.secretFiles, path) {
			lines = append(lines, hex.EncodeToString(sum[:])+"  "+filepath.ToSlash(name)+"\n")
		}
	}
	const name = 2*sha256.Size + 2 // where the name begins
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[name:], b[name:]) })
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:])
}

// Loader reads configurations. The zero value uses the file system and the environment of the
// process.
type Loader struct {
	// Env looks up an environment variable; nil means os.LookupEnv.
	Env func(string) (string, bool)
	// Files holds the files; nil means the file system.
	Files fs.FS
	// StandIns replaces models and remote agents; nil replaces nothing.
	StandIns *StandIns
	// Additions define agents and teams that are served in addition to those of the file.
	Additions []Addition
	// Loopback lets additions name addresses of this machine, as if server.egress.allow listed them.
	Loopback bool

	ctx context.Context //nolint:containedctx // of With, which does not outlive it; nil has no end
}

// Find returns the configuration file for a path: the path itself, or team.yaml or team.yml if the
// path is a folder.
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
	return "", Faults{{File: path, Message: "the folder contains no team.yaml", Hint: "name the file, or create team.yaml in it"}}
}

// Load reads a configuration file, or the team.yaml of a folder. If the file is invalid, the error
// is of type Faults and holds all of its faults.
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

// Parse is like Load for a file whose content is data. Files that it refers to are read relative to
// path.
func (l Loader) Parse(path string, data []byte) (*Config, error) {
	c := &Config{
		File: path, Used: map[string]bool{}, Scripts: map[string]*scripted.Script{}, scripts: map[string][]byte{},
		Schemas: map[string]*guard.Schema{}, schemas: map[string][]byte{}, trusted: map[string][]byte{}, dir: filepath.Dir(path),
		loader: l, source: data,
	}
	c.loader.ctx = nil
	c.sums = map[string][sha256.Size]byte{}
	c.read = func(path string) ([]byte, error) {
		b, err := l.readFile(path)
		if err == nil {
			c.sums[path] = sha256.Sum256(b)
		}
		return b, err
	}
	defer func() { c.read = l.readFile }()
	d := parse(path, data)
	if d.root == nil {
		return nil, d.result()
	}
	d.ctx = cmp.Or(l.ctx, context.Background())
	for _, a := range l.Additions {
		d.add(a)
	}
	c.document, c.standIns = d, d.standIn(l.StandIns)
	d.shape(d.root, (&teamv1.ServerConfig{}).ProtoReflect().Descriptor())
	gaps := d.expand(d.root, nil, lookup{env: l.env(), file: c.ReadFile, found: c.recordSecretFile})
	if d.ended() {
		return nil, context.Cause(d.ctx)
	}
	server, err := d.decode()
	if err != nil {
		return nil, fmt.Errorf("checking %s: %w", path, err)
	}
	order(server)
	c.Server, c.additions = server, d.origins()
	c.accounts = c.makers()
	c.recordMissing(gaps)
	d.rejectServerOnly(server)
	k := &checker{document: d, Config: c, env: l.env(), gaps: gaps, presumedMembers: map[string][]string{}}
	k.check()
	if d.ended() {
		return nil, context.Cause(d.ctx)
	}
	d.ctx = context.Background()
	if len(d.faults) > 0 {
		return nil, d.result()
	}
	c.playStandIns()
	if err := c.conceal(); err != nil {
		return nil, fmt.Errorf("checking %s: %w", path, err)
	}
	return c, nil
}

func (l Loader) env() func(string) (string, bool) {
	if l.Env != nil {
		return l.Env
	}
	return os.LookupEnv
}

// maxFile is the maximum size of a file, in bytes.
const maxFile = 64 << 20

var (
	errIrregular = errors.New("not a regular file")
	errTooLarge  = errors.New("too large")
)

// readFile reads a regular file of at most maxFile bytes: a pipe or a device may never end.
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

// unreadable returns the fault for a file that cannot be read.
func unreadable(path string, err error) Faults {
	f := Fault{File: path, Message: "cannot be read", Hint: "check the path and its permissions"}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Message, f.Hint = "the file does not exist", "check the path"
	case errors.Is(err, fs.ErrPermission):
		f.Message, f.Hint = "permission denied", "check its permissions"
	case errors.Is(err, errIrregular):
		f.Message, f.Hint = "is not a regular file", "name a file, not a pipe or device"
	case errors.Is(err, errTooLarge):
		f.Message, f.Hint = fmt.Sprintf("is larger than %d MiB", maxFile>>20), "split it"
	}
	return Faults{f}
}
