package config

import (
	"fmt"
	"net/url"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/references"
	"github.com/agentteams/team-server/internal/config/source"
)

// provider names the environment variables that a model provider reads.
type provider struct{ key, baseURL string }

var providers = map[string]provider{
	"openai":    {key: "OPENAI_API_KEY", baseURL: "OPENAI_BASE_URL"},
	"anthropic": {key: "ANTHROPIC_API_KEY"},
	"gemini":    {key: "GEMINI_API_KEY"},
}

// Connected reports whether a model can be called: it has a key or an endpoint of its own, or its
// provider needs neither.
func Connected(m *teamv1.ModelConfig) bool {
	_, provided := providers[m.GetProvider()]
	return !provided || m.GetApiKey() != "" || m.GetBaseUrl() != ""
}

// Lacks returns what a model needs and the environment does not have, such as "OPENAI_API_KEY, which is not set"; "" if it
// lacks nothing. Only a model that is not in use can lack something.
func Lacks(c *Config, model string) string {
	if lack := c.missingByID[[2]string{"models", model}]; lack != "" {
		return lack
	}
	if m := c.Server.GetModels()[model]; !Connected(m) {
		return providers[m.GetProvider()].key + ", which " + source.Unset
	}
	return ""
}

// recordMissing records, by entry, the variables and files that are missing.
func (c *Config) recordMissing(gaps []source.Missing) {
	c.missingByID = map[[2]string]string{}
	for _, g := range gaps {
		if len(g.Path) < 2 {
			continue
		}
		section, _ := g.Path[0].(string)
		id, _ := g.Path[1].(string)
		c.missingByID[[2]string{section, id}] = g.Name + ", which " + g.Lack
	}
}

// setKey is the hint where the key of a model is missing.
const setKey = "set it, or use a model without a key: one at a base_url of your own, or one with provider: scripted"

// needs reports missing variables and files to which a part of the file that is in use refers, and
// fills in the keys and addresses that models take from the environment.
func (k *checker) needs() {
	for _, g := range k.gaps {
		subject := k.subject(g.Path)
		if subject == "" {
			continue
		}
		hint := g.Hint
		if g.Lack == source.Unset && len(g.Path) > 0 && g.Path[0] == "models" {
			hint = setKey
		}
		k.doc.NodeFault(g.Node, fmt.Sprintf("%s needs %s, which %s", subject, g.Name, g.Lack), hint)
	}
	for _, name := range sorted(k.Server.GetModels()) {
		m := k.Server.GetModels()[name]
		key, named := k.keys[name]
		p, provided := providers[m.GetProvider()]
		switch {
		case !named && provided:
			k.key(name, m, p)
		case key == "" || m.GetApiKey() != "" || k.missingByID[[2]string{"models", name}] != "":
		default:
			if m.ApiKey, _ = k.env(key); m.GetApiKey() == "" {
				k.lacksKey(name, key)
			}
		}
	}
}

// subject names what uses the value at path, or returns "" if it is unused.
func (k *checker) subject(path []any) string {
	if len(path) < 2 {
		return "the file"
	}
	id, _ := path[1].(string)
	switch path[0] {
	case "models":
		return k.user(references.Model, id)
	case "agents":
		if k.Used[id] {
			return fmt.Sprintf("agent %q", id)
		}
		return ""
	case "teams":
		return fmt.Sprintf("team %q", id)
	case "tools":
		return k.user(references.Tool, id)
	}
	return "the server"
}

// key fills in the key and address of a model. A key from the environment is never sent to an
// address that the file names.
func (k *checker) key(name string, m *teamv1.ModelConfig, p provider) {
	own, at := m.GetBaseUrl() != "", k.at("models", name, "provider")
	if !own && p.baseURL != "" {
		m.BaseUrl, _ = k.env(p.baseURL)
		if user := k.user(references.Model, name); user != "" && m.GetBaseUrl() != "" && !isModelAddress(m.GetBaseUrl()) {
			at.Fault(fmt.Sprintf("%s needs %s, which is not an http or https address without a user and query", user, p.baseURL), "for example http://127.0.0.1:8000/v1")
		}
	}
	if own || m.GetApiKey() != "" || k.missingByID[[2]string{"models", name}] != "" {
		return
	}
	m.ApiKey, _ = k.env(p.key)
	if m.GetApiKey() == "" && m.GetBaseUrl() == "" {
		k.lacksKey(name, p.key)
	}
}

// lacksKey reports a model in use without a key, which a variable would hold.
func (k *checker) lacksKey(name, variable string) {
	if user := k.user(references.Model, name); user != "" {
		k.at("models", name, "provider").Fault(fmt.Sprintf("%s needs %s, which is not set", user, variable), setKey)
	}
}

// isModelAddress reports whether a URL can be the address of a model.
func isModelAddress(raw string) bool {
	u, err := url.Parse(raw)
	_, _, bad := splitCard(raw)
	return err == nil && bad == nil && (u.Scheme == "http" || u.Scheme == "https") && plain(u)
}
