package config

import (
	"fmt"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// provider is what a model of it takes from the environment.
type provider struct{ key, baseURL string }

var providers = map[string]provider{
	"openai":    {key: "OPENAI_API_KEY", baseURL: "OPENAI_BASE_URL"},
	"anthropic": {key: "ANTHROPIC_API_KEY"},
	"gemini":    {key: "GEMINI_API_KEY"},
}

// keys fills in the keys and addresses that models take from the environment.
func (k *checker) keys() {
	for _, name := range sorted(k.Server.GetModels()) {
		m := k.Server.GetModels()[name]
		if p, ok := providers[m.GetProvider()]; ok {
			k.key(name, m, p)
		}
	}
}

// key fills in key and address. The key of the environment goes to no address
// that the file names.
func (k *checker) key(name string, m *teamv1.ModelConfig, p provider) {
	own := m.GetBaseUrl() != ""
	if !own && p.baseURL != "" {
		m.BaseUrl, _ = k.env(p.baseURL)
	}
	if own || m.GetApiKey() != "" || k.gapped("models", name) {
		return
	}
	m.ApiKey, _ = k.env(p.key)
	if m.GetApiKey() != "" || m.GetBaseUrl() != "" {
		return
	}
	if user := k.user(name); user != "" {
		n, _ := k.at("models", name, "provider")
		k.fault(n, fmt.Sprintf("%s needs %s, which is not set", user, p.key), "set it, or point the agent at a model with provider: scripted")
	}
}

// fallbacks checks the models that stand in for others.
func (k *checker) fallbacks() {
	for _, name := range sorted(k.Server.GetModels()) {
		seen := map[string]bool{name: true}
		for i, next := range k.Server.GetModels()[name].GetFallback() {
			at := []any{"models", name, "fallback", i}
			k.model(next, fmt.Sprintf("the fallback of model %q", name), at...)
			if n, _ := k.at(at...); seen[next] {
				k.fault(n, fmt.Sprintf("model %q falls back to %q twice", name, next), "each model is asked once; remove this one")
			}
			seen[next] = true
		}
	}
}

// reach are the models that an answer of a model may come from: itself and its
// fallbacks, in their order. Those of a fallback are not asked.
func (c *Config) reach(model string) []string {
	m := c.Server.GetModels()[model]
	if m == nil {
		return nil
	}
	return append([]string{model}, m.GetFallback()...)
}

// uses reports whether answers of a model may come from another.
func (c *Config) uses(model, other string) bool { return slices.Contains(c.reach(model), other) }

// Connected reports whether a model of a file that was read can be called: it has a
// key, an endpoint of its own, or needs neither.
func Connected(m *teamv1.ModelConfig) bool {
	_, provided := providers[m.GetProvider()]
	return !provided || m.GetApiKey() != "" || m.GetBaseUrl() != ""
}
