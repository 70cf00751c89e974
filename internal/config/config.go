// Package config reads a configuration file and reports everything that is wrong with it at once:
// syntax, keys, values, references and expressions. A Config it returns can be built.
package config

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/guard"
	"github.com/agentteams/team-server/pkg/model/scripted"
	"github.com/agentteams/team-server/pkg/secret"
	"github.com/agentteams/team-server/pkg/team"
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

// Program is what the Go program that loads a file brings to it, by the names in the file. A part that is nil is missing.
type Program struct {
	Agents     map[string]agent.Agent
	Tools      map[string]agent.Tool
	Schedulers map[string]team.Scheduler // by team
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

// sorted returns the keys of a map in ascending order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Addition returns the name of the addition that defines an agent or team, or "" if the
// configuration file defines it.
func (c *Config) Addition(id string) string { return c.additions[id] }

// AccountOf returns the account that has made an agent or team by the API, "" if it is of the configuration
// file.
func (c *Config) AccountOf(id string) string { return c.accounts[id] }

// Added returns the ids of the agents and teams that the named addition defines, sorted.
func (c *Config) Added(name string) []string {
	var ids []string
	for id, with := range c.additions {
		if with == name {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Beside returns a configuration that serves everything c serves, and also, for each name in
// others, the agents and teams that the other configuration has from the addition of that name. All
// configurations must come from the same file.
func (c *Config) Beside(others map[string]*Config) *Config {
	all := *c
	all.Server = &teamv1.ServerConfig{
		Version: c.Server.GetVersion(), Models: c.Server.GetModels(), Tools: c.Server.GetTools(), Server: c.Server.GetServer(),
		Agents: maps.Clone(c.Server.GetAgents()), Teams: maps.Clone(c.Server.GetTeams()),
	}
	all.Used, all.additions, all.accounts = maps.Clone(c.Used), map[string]string{}, map[string]string{}
	if all.Server.Agents == nil {
		all.Server.Agents = map[string]*teamv1.AgentConfig{}
	}
	if all.Server.Teams == nil {
		all.Server.Teams = map[string]*teamv1.TeamConfig{}
	}
	for name, other := range others {
		for id, with := range other.additions {
			if with != name {
				continue
			}
			all.additions[id], all.accounts[id], all.Used[id] = with, other.accounts[id], true
			if a := other.Server.GetAgents()[id]; a != nil {
				all.Server.Agents[id] = a
			} else {
				all.Server.Teams[id] = other.Server.GetTeams()[id]
			}
		}
	}
	return &all
}
