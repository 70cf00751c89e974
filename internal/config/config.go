// Package config reads a configuration file and reports everything that is wrong with it at once:
// syntax, keys, values, references and expressions. A Config it returns can be built.
package config

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/config/references"
	"github.com/agentteams/team-server/internal/config/source"
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
	// Shipped holds the names of the models whose price is not of the file: the program ships with it.
	Shipped map[string]bool
	// Scripts holds the scripts of scripted models, by model name.
	Scripts map[string]*scripted.Script
	// Schemas holds the JSON Schemas that guardrails and agents refer to, by the file name they
	// use.
	Schemas map[string]*guard.Schema
	// ToolScripts holds the scripts that replace MCP servers, by name. Only stand-ins are.
	ToolScripts map[string]*teamv1.ToolScript
	// Program is what the Go program that has loaded the file brings to it.
	Program Program

	dir         string
	scripts     map[string][]byte        // the sources of Scripts
	schemas     map[string][]byte        // the sources of Schemas
	trusted     map[string][]byte        // the files by which remote agents are verified: tls.ca and trusted_keys, by the name they have here
	secretFiles []string                 // paths of files that ${file:PATH} names for secrets
	missingByID map[[2]string]string     // by section and id: what an unused entry needs but is not available
	secrets     map[string]secret.Secret // those of Server, by what Server has in their place
	files       source.Files
	sums        map[string][sha256.Size]byte // of the files that Parse has read, by path

	additions map[string]string // by id of an agent or team: the name of the addition that defines it
	accounts  map[string]string // by id of an agent or team: the account that has made it by the API
	restored  map[string]bool   // after Restore: ids of the agents whose address does not come from the file
	loader    Loader            // With parses source again with this loader
	source    []byte
	document  *source.Document // the parsed text; nil after Restore
	standIns                   // replacements for models and agents
}

// ReadFile reads a file that the configuration refers to. A relative name is relative to the
// configuration file.
func (c *Config) ReadFile(name string) ([]byte, error) { return c.files.Read(c.Path(name)) }

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
	// Program is what the Go program that loads the file brings to it; nil means that it is team-server.
	Program *Program
	// AnyProgram accepts a file that leaves anything to a Go program. Its agents cannot be built.
	AnyProgram bool

	ctx context.Context //nolint:containedctx // of With, which does not outlive it; nil has no end
}

// files returns what the loader reads from.
func (l Loader) files() source.Files { return source.Files{FS: l.Files} }

// Exists reports whether the path can be accessed.
func (l Loader) Exists(path string) bool { return l.files().Exists(path) }

// Read decodes another file than a configuration, such as a test file; see source.Files.Decode.
func (l Loader) Read(path string, m proto.Message) (*source.Document, error) {
	return l.files().Decode(path, m)
}

// Find returns the configuration file for a path: the path itself, or team.yaml or team.yml if the
// path is a folder.
func (l Loader) Find(path string) (string, error) {
	info, err := l.files().Stat(path)
	if err != nil {
		return "", source.Faults{source.Unreadable(path, err)}
	}
	if !info.IsDir() {
		return path, nil
	}
	for _, name := range []string{"team.yaml", "team.yml"} {
		if l.Exists(filepath.Join(path, name)) {
			return filepath.Join(path, name), nil
		}
	}
	return "", source.Faults{{File: path, Message: "the folder contains no team.yaml", Hint: "name the file, or create team.yaml in it"}}
}

// Load reads a configuration file, or the team.yaml of a folder. If the file is invalid, the error
// is of type source.Faults and holds all of its faults.
func (l Loader) Load(path string) (*Config, error) {
	path, err := l.Find(path)
	if err != nil {
		return nil, err
	}
	data, err := l.files().Read(path)
	if err != nil {
		return nil, source.Faults{source.Unreadable(path, err)}
	}
	return l.Parse(path, data)
}

// Parse is like Load for a file whose content is data. Files that it refers to are read relative to
// path.
func (l Loader) Parse(path string, data []byte) (*Config, error) {
	k, err := l.parse(path, data)
	if err != nil {
		return nil, err
	}
	c := k.Config
	if fs := k.doc.Faults(); fs != nil {
		return nil, fs
	}
	c.playStandIns()
	if err := c.conceal(); err != nil {
		return nil, fmt.Errorf("checking %s: %w", path, err)
	}
	return c, nil
}

// parse reads and checks the content of a file. The document of the result holds the faults of the file.
func (l Loader) parse(path string, data []byte) (*checker, error) {
	sums := map[string][sha256.Size]byte{}
	c := &Config{
		File: path, Used: map[string]bool{}, Scripts: map[string]*scripted.Script{}, scripts: map[string][]byte{},
		Schemas: map[string]*guard.Schema{}, schemas: map[string][]byte{}, trusted: map[string][]byte{}, dir: filepath.Dir(path),
		loader: l, source: data, sums: sums, files: source.Files{FS: l.Files, Each: func(path string, data []byte) { sums[path] = sha256.Sum256(data) }},
	}
	c.loader.ctx = nil
	if l.Program != nil {
		c.Program = *l.Program
	}
	defer func() { c.files = l.files() }()
	d := source.Parse(path, data)
	if d.Root() == nil {
		return nil, d.Faults()
	}
	ctx := cmp.Or(l.ctx, context.Background())
	d.SetContext(ctx)
	for _, a := range l.Additions {
		a.add(d)
	}
	c.document, c.standIns = d, standIn(d.Root(), l.StandIns)
	c.Server = &teamv1.ServerConfig{}
	d.Shape(c.Server)
	gaps := d.Expand(source.Lookup{Env: l.env(), File: c.ReadFile, Found: func(name string) { c.secretFiles = append(c.secretFiles, c.Path(name)) }})
	if d.Ended() {
		return nil, context.Cause(ctx)
	}
	if err := d.Decode(c.Server); err != nil {
		return nil, fmt.Errorf("checking %s: %w", path, err)
	}
	for _, t := range c.Server.GetTeams() {
		modes.InListedOrder(t.GetWorkflow().GetSteps())
	}
	c.additions = origins(d)
	c.accounts = c.makers()
	c.recordMissing(gaps)
	c.rejectServerOnly(d)
	k := &checker{Config: c, doc: d, env: l.env(), gaps: gaps, uses: map[string][]references.Reference{}, presumed: map[string][]string{}}
	k.check()
	if d.Ended() {
		return nil, context.Cause(ctx)
	}
	d.SetContext(context.Background())
	return k, nil
}

// Line returns the line of the key or list entry at path in the configuration file. It returns 0 if
// the file has no such entry, or if c was restored from a definition.
func (c *Config) Line(path ...any) int {
	if c.document == nil || len(path) == 0 || !c.document.Has(path...) {
		return 0
	}
	return c.document.Line(path...)
}

// Place returns the file and the line of the key or list entry at path, such as team.yaml:12; "" where Line returns 0.
func Place(c *Config, path ...any) string {
	if line := c.Line(path...); line > 0 {
		return fmt.Sprintf("%s:%d", c.File, line)
	}
	return ""
}

func (l Loader) env() func(string) (string, bool) {
	if l.Env != nil {
		return l.Env
	}
	return os.LookupEnv
}
