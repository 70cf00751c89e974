package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/references"
)

// Definition is an agent or team with everything it is built from. A run stores the revision of the
// definition it began with. Definitions of different accounts have different revisions. Secrets are not part
// of it: keys, tokens, addresses and certificates of the configuration file are left out.
type Definition struct {
	// Revision identifies the content: 32 hexadecimal digits.
	Revision string
	// Body is an encoded teamv1.Definition. Equal content has equal bytes.
	Body []byte
	// IDs are the agents and teams that the definition contains, and Accounts the accounts that have made some of them
	// by the API.
	IDs      []string
	Accounts map[string]string
}

// Revision returns the revision of an encoded definition.
func Revision(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:16])
}

// Definition returns the definition of an agent or team that is served.
func (c *Config) Definition(id string) (Definition, error) {
	d := c.closure(id)
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(d)
	if err != nil {
		return Definition{}, fmt.Errorf("definition of %q: %w", id, err)
	}
	ids := append(sorted(d.GetConfig().GetAgents()), sorted(d.GetConfig().GetTeams())...)
	return Definition{Revision: Revision(body), Body: body, IDs: ids, Accounts: d.GetAccounts()}, nil
}

// closure returns everything an agent or team is built from.
func (c *Config) closure(id string) *teamv1.Definition {
	d := &teamv1.Definition{Id: id, Scripts: map[string][]byte{}, Schemas: map[string][]byte{}, Accounts: map[string]string{}, Config: &teamv1.ServerConfig{
		Models: map[string]*teamv1.ModelConfig{}, Tools: map[string]*teamv1.ToolConfig{}, Agents: map[string]*teamv1.AgentConfig{}, Teams: map[string]*teamv1.TeamConfig{},
	}}
	for _, id := range references.Reach(c.Server, id) {
		if a := c.Server.GetAgents()[id]; a != nil {
			d.Config.Agents[id] = withoutAccess(a)
			if c.Addition(id) == "" {
				d.Config.Agents[id] = withoutConnection(d.Config.Agents[id])
			}
		} else if t := c.Server.GetTeams()[id]; t != nil {
			d.Config.Teams[id] = withoutAccess(t)
		}
		if account := c.AccountOf(id); account != "" {
			d.Accounts[id] = account
		}
		for _, u := range references.Of(c.Server, id) {
			c.collect(d, u)
		}
	}
	return d
}

// collect adds what an agent or team refers to to a definition: models and their fallbacks without keys and addresses, tools
// without their programs, addresses and secrets, and schema files.
func (c *Config) collect(d *teamv1.Definition, u references.Reference) {
	switch u.Kind {
	case references.Model:
		for _, name := range references.WithFallbacks(c.Server, u.Name) {
			m := proto.CloneOf(c.Server.GetModels()[name])
			m.ApiKey, m.BaseUrl, m.File, m.Api = "", "", "", false
			d.Config.Models[name] = m
			if script, ok := c.scripts[name]; ok {
				d.Scripts[name] = script
			}
		}
	case references.Tool:
		switch t := c.Server.GetTools()[u.Name]; {
		case t.GetMcp() != nil:
			m := proto.CloneOf(t.GetMcp())
			connect(m, &teamv1.McpTool{})
			d.Config.Tools[u.Name] = &teamv1.ToolConfig{Mcp: m, Approve: t.GetApprove()}
		case t.GetProgram() != nil:
			d.Config.Tools[u.Name] = &teamv1.ToolConfig{Program: t.GetProgram()}
		}
	case references.Schema:
		if data, ok := c.schemas[u.Name]; ok {
			d.Schemas[u.Name] = data
		}
	case references.Agent:
	}
}

// withoutConnection returns a copy of an agent without what only the current configuration file may
// set: the address and credentials of a remote agent.
func withoutConnection(a *teamv1.AgentConfig) *teamv1.AgentConfig {
	a = proto.CloneOf(a)
	switch {
	case a.GetGrpc() != nil:
		a.Grpc = &teamv1.GrpcAgent{}
	case a.GetA2A() != nil:
		a.A2A = &teamv1.A2AAgent{}
	}
	return a
}

// TeamOf returns a team of an encoded definition, or nil if the definition does not contain it or
// cannot be decoded.
func TeamOf(body []byte, id string) *teamv1.TeamConfig {
	d := &teamv1.Definition{}
	if proto.Unmarshal(body, d) != nil {
		return nil
	}
	return d.GetConfig().GetTeams()[id]
}

// ErrNewer means that a later version of the program has stored a definition, with keys that this one does not know.
var ErrNewer = errors.New("the definition has keys of a later version")

// Absent returns what an agent or team reaches outside of the process and that has no replacement:
// models by name, agents by id and tools by name, each sorted.
func (c *Config) Absent(id string) (models, agents, tools []string) {
	d := c.closure(id).GetConfig()
	for name := range d.GetTools() {
		if c.absent[toolKey(name)] {
			tools = append(tools, name)
		}
	}
	for name := range d.GetModels() {
		if c.absent[modelKey(name)] {
			models = append(models, name)
		}
	}
	for id := range d.GetAgents() {
		if c.absent[id] {
			agents = append(agents, id)
		}
	}
	slices.Sort(tools)
	slices.Sort(models)
	slices.Sort(agents)
	return models, agents, tools
}

// connect sets how m is reached to what it is in from.
func connect(m, from *teamv1.McpTool) {
	m.Command, m.Cwd, m.Env, m.Required = from.GetCommand(), from.GetCwd(), from.GetEnv(), from.GetRequired()
	m.Url, m.Bearer, m.Oauth, m.Headers = from.GetUrl(), from.GetBearer(), from.GetOauth(), from.GetHeaders()
}
