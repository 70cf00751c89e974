package config

import (
	"fmt"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// The variables of the environment that models of provider openai read.
const (
	envKey     = "OPENAI_API_KEY"
	envBaseURL = "OPENAI_BASE_URL"
)

// lack keeps what models and agents need and is not there, should somebody use
// them later.
func (c *Config) lack(gaps []missing) {
	c.lacking = map[[2]string]string{}
	for _, g := range gaps {
		if len(g.path) < 2 {
			continue
		}
		section, _ := g.path[0].(string)
		id, _ := g.path[1].(string)
		c.lacking[[2]string{section, id}] = g.name + ", which " + g.lack
	}
}

// needs reports variables and files that are not there and that something used
// needs, by name; and fills in what models take from the environment.
func (k *checker) needs() {
	for _, g := range k.gaps {
		subject := k.subject(g.path)
		if subject == "" {
			continue
		}
		hint := g.why
		if g.lack == unset && len(g.path) > 0 && g.path[0] == "models" {
			hint = "set it, or point the agent at a model with provider: scripted"
		}
		k.fault(g.node, fmt.Sprintf("%s needs %s, which %s", subject, g.name, g.lack), hint)
	}
	for _, name := range sorted(k.Server.GetModels()) {
		if m := k.Server.GetModels()[name]; m.GetProvider() == "openai" {
			k.openai(name, m)
		}
	}
}

// openai fills in key and address. The key of the environment goes to no
// address that the file names.
func (k *checker) openai(name string, m *teamv1.ModelConfig) {
	if m.GetBaseUrl() != "" || m.GetApiKey() != "" || k.gapped("models", name) {
		if m.GetBaseUrl() == "" {
			m.BaseUrl, _ = k.env(envBaseURL)
		}
		return
	}
	m.BaseUrl, _ = k.env(envBaseURL)
	m.ApiKey, _ = k.env(envKey)
	if m.GetApiKey() != "" || m.GetBaseUrl() != "" {
		return
	}
	if user := k.user(name); user != "" {
		n, _ := k.at("models", name, "provider")
		k.fault(n, fmt.Sprintf("%s needs %s, which is not set", user, envKey), "set it, or point the agent at a model with provider: scripted")
	}
}

// gapped reports whether something at or below path is missing.
func (k *checker) gapped(section, id string) bool {
	for _, g := range k.gaps {
		if len(g.path) > 1 && g.path[0] == section && g.path[1] == id {
			return true
		}
	}
	return false
}

// subject names what uses the value at path; empty if nothing does.
func (k *checker) subject(path []any) string {
	if len(path) < 2 {
		return "the file"
	}
	id, _ := path[1].(string)
	switch path[0] {
	case "models":
		return k.user(id)
	case "agents":
		if k.Used[id] {
			return fmt.Sprintf("agent %q", id)
		}
		return ""
	case "teams":
		return fmt.Sprintf("team %q", id)
	case "tools":
		return ""
	}
	return "the server"
}

// user returns a used agent or team that works with the model.
func (k *checker) user(model string) string {
	for _, id := range sorted(k.Server.GetAgents()) {
		if k.Used[id] && k.Server.GetAgents()[id].GetModel() == model {
			return fmt.Sprintf("agent %q", id)
		}
	}
	for _, id := range sorted(k.Server.GetTeams()) {
		switch t := k.Server.GetTeams()[id]; model {
		case t.GetSupervisor().GetRouter().GetModel():
			return fmt.Sprintf("the router of team %q", id)
		case Leader(t).GetModel():
			return fmt.Sprintf("the leader of team %q", id)
		}
		if k.Server.GetTeams()[id].GetBroadcast().GetModel() == model {
			return fmt.Sprintf("the broadcast of team %q", id)
		}
	}
	return ""
}
