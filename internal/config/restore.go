package config

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/newer"
	"github.com/agentteams/team-server/pkg/guard"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

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
		File: c.File, Server: d.GetConfig(), Used: map[string]bool{}, Scripts: map[string]*scripted.Script{}, Schemas: map[string]*guard.Schema{}, ToolScripts: c.ToolScripts,
		restored: map[string]bool{}, accounts: d.GetAccounts(), Program: c.Program, dir: c.dir, files: c.files, secrets: c.secrets, scripts: d.GetScripts(), schemas: d.GetSchemas(),
	}}
	for _, file := range sorted(r.to.schemas) {
		s, err := guard.ParseSchema(file, r.to.schemas[file])
		if err != nil {
			r.fault("the schema %q can no longer be read", file)
			continue
		}
		r.to.Schemas[file] = s
	}
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
		r.fault("model %q needs %s, which %s", name, providers[m.GetProvider()].key, source.Unset)
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

// tool fills in the program or address of a tool from the current file.
func (r *restorer) tool(name string, t *teamv1.ToolConfig) {
	now := r.from.Server.GetTools()[name]
	switch {
	case t.GetProgram() != nil && now.GetProgram() != nil: // the program brings it
	case t.GetMcp() == nil, now.GetMcp() == nil:
		r.fault("tool %q is no longer configured", name)
	default:
		connect(t.GetMcp(), now.GetMcp())
		r.requireComplete("tools", name, "tool")
	}
}

// Only returns a configuration with an agent or team and everything it is built from.
func (c *Config) Only(id string) (*Config, error) {
	d, err := c.Definition(id)
	if err != nil {
		return nil, err
	}
	return c.Restore(d.Body)
}
