package config

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/config/references"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/guard"
	"github.com/agentteams/team-server/pkg/model/scripted"
	"github.com/agentteams/team-server/pkg/secret"
)

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
	rejectServerOnly(d, c.Server, c.additions)
	k := &checker{Config: c, doc: d, env: l.env(), gaps: gaps, uses: map[string][]references.Reference{}, presumed: map[string][]string{}}
	k.check()
	if d.Ended() {
		return nil, context.Cause(ctx)
	}
	d.SetContext(context.Background())
	return k, nil
}

func (l Loader) env() func(string) (string, bool) {
	if l.Env != nil {
		return l.Env
	}
	return os.LookupEnv
}

// playStandIns gives replaced models and tools their scripts. The prices of models stay as configured.
func (c *Config) playStandIns() {
	c.ToolScripts = c.tools
	for name, s := range c.played {
		m := c.Server.GetModels()[name]
		m.Provider, m.File, m.ApiKey, m.BaseUrl = "scripted", "stand-in", "", ""
		c.Scripts[name], c.scripts[name] = s.Script, s.Source
	}
}

// With parses the same file again with the given additions, which replace those c was loaded with.
// The file itself is not read again, but the files that it names are. If ctx ends meanwhile, With soon returns its cause.
func (c *Config) With(ctx context.Context, additions []Addition) (*Config, error) {
	l := c.loader
	l.Additions, l.ctx = additions, ctx
	return l.Parse(c.File, c.source)
}

// Secrets returns the secrets of a configuration file that can be read here, also if others cannot, and the variables and
// files of these. The file need not be valid.
func (l Loader) Secrets(path string) (found []secret.Secret, missing []string, err error) {
	data, err := l.files().Read(path)
	if err != nil {
		return nil, nil, source.Faults{source.Unreadable(path, err)}
	}
	k, err := l.parse(path, data)
	if err != nil {
		return nil, nil, err
	}
	for _, g := range k.gaps {
		if g.Secret {
			missing = append(missing, g.Name)
		}
	}
	for name, m := range k.Server.GetModels() {
		variable := cmp.Or(k.keys[name], providers[m.GetProvider()].key)
		own := k.keys[name] == "" && m.GetBaseUrl() != "" // which gets no key of the environment
		if m.GetApiKey() == "" && variable != "" && !own && k.missingByID[[2]string{"models", name}] == "" {
			missing = append(missing, variable)
		}
	}
	slices.Sort(missing)
	err = k.conceal()
	return k.Secrets(), slices.Compact(missing), err
}
