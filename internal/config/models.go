package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// provider names the environment variables that a model provider reads.
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

// key fills in the key and address of a model. A key from the environment is never sent to an
// address that the file names.
func (k *checker) key(name string, m *teamv1.ModelConfig, p provider) {
	own := m.GetBaseUrl() != ""
	if !own && p.baseURL != "" {
		m.BaseUrl, _ = k.env(p.baseURL)
		if user := k.user(name); user != "" && m.GetBaseUrl() != "" && !isModelAddress(m.GetBaseUrl()) {
			n, _ := k.at("models", name, "provider")
			k.fault(n, fmt.Sprintf("%s needs %s, which is not an http or https address without a user and query", user, p.baseURL), "for example http://127.0.0.1:8000/v1")
		}
	}
	if own || m.GetApiKey() != "" || k.lacks("models", name) {
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

// isModelAddress reports whether a URL can be the address of a model.
func isModelAddress(raw string) bool {
	u, err := url.Parse(raw)
	_, _, bad := splitCard(raw)
	return err == nil && bad == nil && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// addresses checks the addresses of models, tools and agent cards.
func (k *checker) addresses() {
	for _, name := range sorted(k.Server.GetModels()) {
		m := k.Server.GetModels()[name]
		n, _ := k.at("models", name, "base_url")
		u := k.address(m.GetBaseUrl(), "base_url", "for example https://HOST/v1", "models", name, "base_url")
		added := map[string]string{"openai": "/chat/completions", "anthropic": "/v1/messages", "gemini": "/v1beta"}[m.GetProvider()]
		ends := strings.HasSuffix(strings.TrimRight(m.GetBaseUrl(), "/"), added)
		switch {
		case u == nil:
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			k.fault(n, "base_url must have no user, query or fragment", "a key belongs in api_key")
		case ends && added != "":
			k.fault(n, "base_url ends with "+added+", which is added to it", "remove "+added+" from its end")
		}
	}
	for _, name := range sorted(k.Server.GetTools()) {
		raw := k.Server.GetTools()[name].GetMcp().GetUrl()
		if u := k.address(raw, "url", "for example http://127.0.0.1:8000/mcp", "tools", name, "mcp", "url"); u != nil && (u.User != nil || u.RawQuery != "" || u.Fragment != "") {
			n, _ := k.at("tools", name, "mcp", "url")
			k.fault(n, "url must have no user, query or fragment", "a token belongs in bearer")
		}
	}
	for _, id := range sorted(k.Server.GetAgents()) {
		raw := k.Server.GetAgents()[id].GetA2A().GetCard()
		if u := k.address(raw, "card", "for example https://HOST/.well-known/agent-card.json", "agents", id, "a2a", "card"); u != nil && u.User != nil {
			n, _ := k.at("agents", id, "a2a", "card")
			k.fault(n, "card must have no user", "a token belongs in auth: {bearer: ...}")
		}
		k.grpcAddress(id, k.Server.GetAgents()[id].GetGrpc())
	}
}

// address parses the URL of a tool or card. It returns nil if the URL is missing or has a fault.
func (k *checker) address(raw, key, instead string, path ...any) *url.URL {
	if raw == "" { // look nothing up: a file may have many agents
		return nil
	}
	n, _ := k.at(path...)
	if k.isDamaged(path...) || k.hasFault(n) {
		return nil
	}
	if _, _, err := splitCard(raw); err != nil {
		k.fault(n, key+" "+err.Error(), instead)
		return nil
	}
	u, _ := url.Parse(raw)
	return u
}

// grpcAddress checks the address of a gRPC agent, and that no token is sent to it in clear.
func (k *checker) grpcAddress(id string, g *teamv1.GrpcAgent) {
	if g.GetAddress() == "" {
		return
	}
	path := []any{"agents", id, "grpc", "address"}
	n, _ := k.at(path...)
	if k.isDamaged(path...) || k.hasFault(n) {
		return
	}
	host, _, err := splitAddress(g.GetAddress())
	switch {
	case err != nil:
		k.fault(n, "address "+err.Error(), "for example agents.example:50051, with a port from 1 to 65535")
	case g.GetAuth().GetOauth() != nil:
		at, _ := k.at("agents", id, "grpc", "auth")
		k.fault(at, "oauth is not supported for agents that implement the Agent service", "use bearer, or call the agent over A2A")
	case g.GetAuth().GetBearer() != "" && g.GetTls() == nil && inClear(host):
		at, _ := k.at("agents", id, "grpc", "auth")
		k.fault(at, "the token would be sent without encryption", "add tls: {} beside auth; without TLS a token is sent only to a loopback address")
	}
}

// files checks the media types that models accept against those that their provider's API takes.
func (k *checker) files() {
	for _, name := range sorted(k.Server.GetModels()) {
		m := k.Server.GetModels()[name]
		takes, known := model.Formats[m.GetProvider()]
		for i, media := range m.GetAccepts() {
			n, _ := k.at("models", name, "accepts", i)
			if known && len(agent.CommonMedia([]string{media}, takes.Types)) == 0 && !k.isDamaged("models", name, "accepts", i) {
				k.fault(n, fmt.Sprintf("models of the provider %q take no files of type %s", m.GetProvider(), media), "remove it; the provider takes "+strings.Join(takes.Types, ", "))
			}
		}
	}
}

// settings checks that the providers of models have the settings of the models and of their agents.
func (k *checker) settings() {
	for _, name := range sorted(k.Server.GetModels()) {
		k.setting(name, k.Server.GetModels()[name].GetSettings(), "models", name, "settings")
	}
	for _, id := range sorted(k.Server.GetAgents()) {
		a := k.Server.GetAgents()[id]
		for _, name := range k.withFallbacks(a.GetModel()) {
			k.setting(name, a.GetSettings(), "agents", id, "settings")
		}
	}
}

// setting reports settings at path that the provider of a model does not have.
func (k *checker) setting(name string, s *teamv1.ModelSettings, path ...any) {
	faults := model.Unsupported(k.Server.GetModels()[name].GetProvider(), s)
	for _, key := range sorted(faults) {
		k.fault(k.keyAt(append(path, key)...), faults[key], fmt.Sprintf("remove it, or use another model than %q", name))
	}
}

// fallbacks checks the names of fallback models.
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

// withFallbacks returns the models that can answer for a model: the model itself, then its
// fallbacks in their order. Fallbacks of a fallback are not used.
func (c *Config) withFallbacks(model string) []string {
	m := c.Server.GetModels()[model]
	if m == nil {
		return nil
	}
	return append([]string{model}, m.GetFallback()...)
}

// mayUse reports whether other can answer for model.
func (c *Config) mayUse(model, other string) bool {
	return slices.Contains(c.withFallbacks(model), other)
}

// Connected reports whether a model can be called: it has a key or an endpoint of its own, or its
// provider needs neither.
func Connected(m *teamv1.ModelConfig) bool {
	_, provided := providers[m.GetProvider()]
	return !provided || m.GetApiKey() != "" || m.GetBaseUrl() != ""
}
