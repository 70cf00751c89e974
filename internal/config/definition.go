package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/newer"
	"github.com/agentteams/team-server/pkg/guard"
	"github.com/agentteams/team-server/pkg/model/scripted"
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
	names := &checker{Config: c}
	for todo := []string{id}; len(todo) > 0; todo = todo[1:] {
		next := todo[0]
		a, t := c.Server.GetAgents()[next], c.Server.GetTeams()[next]
		switch {
		case d.Config.Agents[next] != nil || d.Config.Teams[next] != nil:
			continue
		case a != nil:
			d.Config.Agents[next] = withoutAccess(a)
			if c.Addition(next) == "" {
				d.Config.Agents[next] = withoutConnection(d.Config.Agents[next])
			}
			c.collectModel(d, a.GetModel())
			c.collectTools(d, a.GetTools())
			c.collectSchemas(d, schemasOf(a.GetGuardrails(), a.GetOutputSchema()))
		case t != nil:
			d.Config.Teams[next] = withoutAccess(t)
			c.collectModel(d, t.GetSupervisor().GetRouter().GetModel())
			c.collectModel(d, leaderModel(t))
			c.collectTools(d, Leader(t).GetTools())
			c.collectModel(d, t.GetBroadcast().GetModel())
			for _, r := range reviews(next, t) {
				c.collectModel(d, r.GetJudge().GetModel())
			}
			c.collectSchemas(d, schemasOfTeam(next, t))
		}
		if account := c.AccountOf(next); account != "" {
			d.Accounts[next] = account
		}
		for _, e := range names.edges(next) {
			todo = append(todo, e.to)
		}
	}
	return d
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

// collectModel adds a model and its fallbacks to a definition, without keys and addresses.
func (c *Config) collectModel(d *teamv1.Definition, model string) {
	for _, name := range c.withFallbacks(model) {
		m := proto.CloneOf(c.Server.GetModels()[name])
		m.ApiKey, m.BaseUrl, m.File, m.Api = "", "", "", false
		d.Config.Models[name] = m
		if script, ok := c.scripts[name]; ok {
			d.Scripts[name] = script
		}
	}
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

// Restore returns the configuration of a stored definition. Its content is as stored; addresses,
// keys and programs come from c. The error names everything that c no longer has and may be shown
// to callers, or is ErrNewer.
func (c *Config) Restore(body []byte) (*Config, error) {
	d := &teamv1.Definition{}
	if err := proto.Unmarshal(body, d); err != nil {
		return nil, fmt.Errorf("decoding the definition: %w", err)
	}
	if newer.Has(d) {
		return nil, ErrNewer
	}
	r := &restorer{from: c, to: &Config{
		File: c.File, Server: d.GetConfig(), Used: map[string]bool{}, Scripts: map[string]*scripted.Script{}, Schemas: map[string]*guard.Schema{},
		restored: map[string]bool{}, accounts: d.GetAccounts(), dir: c.dir, secrets: c.secrets, scripts: d.GetScripts(), schemas: d.GetSchemas(), read: c.read,
	}}
	r.schemas()
	for _, id := range sorted(r.to.Server.GetAgents()) {
		r.to.Used[id] = true
		r.agent(id, r.to.Server.GetAgents()[id])
	}
	for id := range r.to.Server.GetTeams() {
		r.to.Used[id] = true
	}
	for _, name := range sorted(r.to.Server.GetModels()) {
		r.model(name, r.to.Server.GetModels()[name])
	}
	for _, name := range sorted(r.to.Server.GetTools()) {
		r.tool(name, r.to.Server.GetTools()[name])
	}
	if len(r.faults) > 0 {
		return nil, errors.New(strings.Join(r.faults, "; "))
	}
	return r.to, nil
}

// restorer fills in the connections that a stored definition leaves out.
type restorer struct {
	from, to *Config
	faults   []string
}

func (r *restorer) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// agent gives a remote agent its address and credentials from the current file. It never takes them from
// an addition that has an agent with the same id, because the author of the addition would then receive
// the contents of the run. An agent of an addition keeps its stored address, because the addition may have
// been deleted.
func (r *restorer) agent(id string, a *teamv1.AgentConfig) {
	var now *teamv1.AgentConfig
	if r.from.Addition(id) == "" {
		now = r.from.Server.GetAgents()[id]
	}
	r.to.restored[id] = a.GetGrpc().GetAddress() != "" || a.GetA2A().GetCard() != ""
	switch {
	case a.GetGrpc().GetAddress() != "", a.GetA2A().GetCard() != "":
	case a.GetGrpc() != nil && now.GetGrpc() == nil, a.GetA2A() != nil && now.GetA2A() == nil:
		r.fault("agent %q is no longer configured", id)
	case a.GetGrpc() != nil:
		a.Grpc = now.GetGrpc()
		r.requireComplete("agents", id, "agent")
	case a.GetA2A() != nil:
		a.A2A = now.GetA2A()
		r.requireComplete("agents", id, "agent")
	}
}

// model gives a model its script, or the key and address from the current file.
func (r *restorer) model(name string, m *teamv1.ModelConfig) {
	if m.GetProvider() == "scripted" {
		s, err := scripted.Parse(name, r.to.scripts[name])
		if err != nil {
			r.fault("the script of model %q can no longer be read", name)
		}
		r.to.Scripts[name] = s
		return
	}
	now := r.from.Server.GetModels()[name]
	switch {
	case now.GetProvider() != m.GetProvider():
		r.fault("model %q of provider %s is no longer configured", name, m.GetProvider())
		return
	case now.GetApiKey() == "" && now.GetBaseUrl() == "" && r.from.missingByID[[2]string{"models", name}] == "":
		r.fault("model %q needs %s, which %s", name, providers[m.GetProvider()].key, unset)
	}
	m.ApiKey, m.BaseUrl = now.GetApiKey(), now.GetBaseUrl()
	r.requireComplete("models", name, "model")
}

// requireComplete adds a fault if the current file has the entry but a variable or file that it
// needs is missing.
func (r *restorer) requireComplete(section, id, word string) {
	if lack := r.from.missingByID[[2]string{section, id}]; lack != "" {
		r.fault("%s %q needs %s", word, id, lack)
	}
}
