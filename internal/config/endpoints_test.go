package config

import "testing"

// TestEndpoints: a provider may be the name of an endpoint that is compatible with OpenAI's.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	vars := env(map[string]string{"GROQ_API_KEY": "groq-key", "AZURE_OPENAI_API_KEY": "azure-key", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
	for model, want := range map[string]struct{ url, key string }{
		"{provider: ollama, name: n}":                                                  {"http://127.0.0.1:11434/v1", ""},
		"{provider: ollama, name: n, base_url: 'http://10.0.0.7:11434/v1'}":            {"http://10.0.0.7:11434/v1", ""},
		"{provider: groq, name: n}":                                                    {"https://api.groq.com/openai/v1", "groq-key"},
		"{provider: groq, name: n, api_key: mine-own}":                                 {"https://api.groq.com/openai/v1", "mine-own"},
		"{provider: groq, name: n, base_url: 'https://proxy.example/v1'}":              {"https://proxy.example/v1", ""}, // the key is not sent there
		"{provider: azure, name: n, base_url: 'https://r.openai.azure.com/openai/v1'}": {"https://r.openai.azure.com/openai/v1", "azure-key"},
		"{provider: openai, name: n}":                                                  {"http://127.0.0.1:9/v1", ""},
	} {
		c, err := Loader{Env: vars}.Parse("team.yaml", []byte("version: v1\nmodels: {m: "+model+"}\nagents: {a: {model: m, instructions: i}}\n"))
		if err != nil {
			t.Errorf("%s: %v", model, err)
			continue
		}
		m := c.Server.GetModels()["m"]
		if free := m.GetPrice() != nil; free != (want.url == "http://127.0.0.1:11434/v1") {
			t.Errorf("%s has the price %v", model, m.GetPrice())
		}
		if key := c.Secret(m.GetApiKey()).Reveal(); m.GetProvider() != "openai" || m.GetBaseUrl() != want.url || key != want.key {
			t.Errorf("%s: %s at %s with %q, want %v", model, m.GetProvider(), m.GetBaseUrl(), key, want)
		}
	}
}
