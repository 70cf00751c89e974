package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/guard"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

// Definition is an agent or team with everything it is built from, as runs are
// tied to it: a teamv1.Definition and the name of its content. It holds no
// secret: keys, tokens, addresses and certificates of the file are left out.
type Definition struct {
	// Revision names the content, in 32 hex digits.
	Revision string
	// Body is the content, the same bytes for the same content.
	Body []byte
	// IDs are the agents and teams in it.
	IDs []string
}

// Revision names the content of a definition.
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
	return Definition{Revision: Revision(body), Body: body, IDs: ids}, nil
}

// closure collects what an agent or team is built from.
func (c *Config) closure(id string) *teamv1.Definition {
	d := &teamv1.Definition{Id: id, Scripts: map[string][]byte{}, Schemas: map[string][]byte{}, Config: &teamv1.ServerConfig{
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
			d.Config.Agents[next] = a
			if c.Addition(next) == "" {
				d.Config.Agents[next] = disconnected(a)
			}
			c.collect(d, a.GetModel())
			c.collectTools(d, a.GetTools())
			c.collectSchemas(d, schemasOf(a.GetGuardrails(), a.GetOutputSchema()))
		case t != nil:
			d.Config.Teams[next] = t
			c.collect(d, t.GetSupervisor().GetRouter().GetModel())
			c.collect(d, Leader(t).GetModel())
			c.collectTools(d, Leader(t).GetTools())
			c.collect(d, t.GetBroadcast().GetModel())
			c.collect(d, t.GetReview().GetJudge().GetModel())
			c.collectSchemas(d, schemasOf(t.GetGuardrails(), ""))
		}
		for _, e := range names.edges(next) {
			todo = append(todo, e.to)
		}
	}
	return d
}

// disconnected is an agent without what only the file that is served may say:
// where a remote one is reached, and with what credentials.
func disconnected(a *teamv1.AgentConfig) *teamv1.AgentConfig {
	a = proto.CloneOf(a)
	switch {
	case a.GetGrpc() != nil:
		a.Grpc = &teamv1.GrpcAgent{}
	case a.GetA2A() != nil:
		a.A2A = &teamv1.A2AAgent{}
	}
	return a
}

// collect adds a model with its fallbacks to a definition, without keys and addresses.
func (c *Config) collect(d *teamv1.Definition, model string) {
	for _, name := range c.reach(model) {
		m := c.Server.GetModels()[name]
		d.Config.Models[name] = &teamv1.ModelConfig{
			Provider: m.GetProvider(), Name: m.GetName(), Price: m.GetPrice(), MaxOutputTokens: m.GetMaxOutputTokens(), Fallback: m.GetFallback(),
		}
		if script, ok := c.scripts[name]; ok {
			d.Scripts[name] = script
		}
	}
}

// TeamOf is a team as a definition on record has it; nil without one.
func TeamOf(body []byte, id string) *teamv1.TeamConfig {
	d := &teamv1.Definition{}
	if proto.Unmarshal(body, d) != nil {
		return nil
	}
	return d.GetConfig().GetTeams()[id]
}

// Restore returns the configuration that a definition on record was: its
// content is as it was, what it is connected to is as c has it. The error names
// everything that c does not have any more, in words for callers.
func (c *Config) Restore(body []byte) (*Config, error) {
	d := &teamv1.Definition{}
	if err := proto.Unmarshal(body, d); err != nil {
		return nil, fmt.Errorf("decoding the definition: %w", err)
	}
	r := &restorer{from: c, to: &Config{
		File: c.File, Server: d.GetConfig(), Used: map[string]bool{}, Scripts: map[string]*scripted.Script{}, Schemas: map[string]*guard.Schema{},
		dir: c.dir, scripts: d.GetScripts(), schemas: d.GetSchemas(), read: c.read,
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

// restorer connects what a definition left open.
type restorer struct {
	from, to *Config
	faults   []string
}

func (r *restorer) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// agent connects a remote agent to where the served file has it. One of an addition
// is where it was: it may be gone by now.
func (r *restorer) agent(id string, a *teamv1.AgentConfig) {
	now := r.from.Server.GetAgents()[id]
	switch {
	case a.GetGrpc().GetAddress() != "", a.GetA2A().GetCard() != "":
	case a.GetGrpc() != nil && now.GetGrpc() == nil, a.GetA2A() != nil && now.GetA2A() == nil:
		r.fault("agent %q is not configured any more", id)
	case a.GetGrpc() != nil:
		a.Grpc = now.GetGrpc()
		r.complete("agents", id, "agent")
	case a.GetA2A() != nil:
		a.A2A = now.GetA2A()
		r.complete("agents", id, "agent")
	}
}

// model gives a model its script, or the key and address of the served file.
func (r *restorer) model(name string, m *teamv1.ModelConfig) {
	if m.GetProvider() == "scripted" {
		s, err := scripted.Parse(name, r.to.scripts[name])
		if err != nil {
			r.fault("the script of model %q cannot be read any more", name)
		}
		r.to.Scripts[name] = s
		return
	}
	now := r.from.Server.GetModels()[name]
	switch {
	case now.GetProvider() != m.GetProvider():
		r.fault("model %q of provider %s is not configured any more", name, m.GetProvider())
		return
	case now.GetApiKey() == "" && now.GetBaseUrl() == "" && r.from.lacking[[2]string{"models", name}] == "":
		r.fault("model %q needs %s, which %s", name, providers[m.GetProvider()].key, unset)
	}
	m.ApiKey, m.BaseUrl = now.GetApiKey(), now.GetBaseUrl()
	r.complete("models", name, "model")
}

// complete reports what the served file has and cannot fill in.
func (r *restorer) complete(section, id, word string) {
	if lack := r.from.lacking[[2]string{section, id}]; lack != "" {
		r.fault("%s %q needs %s", word, id, lack)
	}
}
