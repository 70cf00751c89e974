package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/source"
)

// compatible is the provider of endpoints that speak OpenAI's chat completions.
const compatible = "openai"

// endpoint is an endpoint that is compatible with OpenAI's and known by a name.
type endpoint struct {
	// baseURL is its address; "" if each user has one of their own, such as example.
	baseURL, example string
	// key is the variable with its key; "" if it needs none.
	key string
}

// endpoints are the endpoints by the words that people write as provider. The variables are those that the providers' own
// descriptions name.
var endpoints = map[string]endpoint{
	"ollama":         {baseURL: "http://127.0.0.1:11434/v1"},
	"vllm":           {baseURL: "http://127.0.0.1:8000/v1"},
	"llamacpp":       {baseURL: "http://127.0.0.1:8080/v1"},
	"lmstudio":       {baseURL: "http://127.0.0.1:1234/v1"},
	"openrouter":     {baseURL: "https://openrouter.ai/api/v1", key: "OPENROUTER_API_KEY"},
	"groq":           {baseURL: "https://api.groq.com/openai/v1", key: "GROQ_API_KEY"},
	"mistral":        {baseURL: "https://api.mistral.ai/v1", key: "MISTRAL_API_KEY"},
	"deepseek":       {baseURL: "https://api.deepseek.com/v1", key: "DEEPSEEK_API_KEY"},
	"together":       {baseURL: "https://api.together.xyz/v1", key: "TOGETHER_API_KEY"},
	"azure":          {example: "https://RESOURCE.openai.azure.com/openai/v1", key: "AZURE_OPENAI_API_KEY"},
	"bedrock-openai": {example: "https://bedrock-runtime.REGION.amazonaws.com/openai/v1", key: "AWS_BEARER_TOKEN_BEDROCK"},
}

// synonyms are other words for providers.
var synonyms = map[string]string{"claude": "anthropic", "google": "gemini", "gpt": compatible, "lm-studio": "lmstudio", "llama.cpp": "llamacpp", "bedrock": "bedrock-openai", "azure-openai": "azure"}

// nameEndpoints gives the models whose provider is the name of an endpoint the address of that and the provider that it is
// compatible with, and reports providers that are not known.
func (k *checker) nameEndpoints() {
	k.keys = map[string]string{}
	for _, name := range sorted(k.Server.GetModels()) {
		m, at := k.Server.GetModels()[name], k.at("models", name)
		e, named := endpoints[m.GetProvider()]
		switch {
		case providers[m.GetProvider()] != provider{} || m.GetProvider() == "scripted":
		case m.GetProvider() == "":
			at.Fault("provider is missing", "use openai (any compatible endpoint), anthropic, gemini, scripted, or "+strings.Join(slices.Sorted(maps.Keys(endpoints)), ", "))
		case !named:
			at.At("provider").Fault(fmt.Sprintf("provider %q is unknown", m.GetProvider()), meantProvider(m.GetProvider()))
		case m.GetBaseUrl() == "" && e.baseURL == "":
			at.At("provider").Fault(fmt.Sprintf("a model of %s needs the address of your endpoint", m.GetProvider()), "add base_url: "+e.example)
		default:
			k.keys[name] = e.applied(m)
		}
	}
}

// applied makes a model one of the endpoint, and returns the variable with its key; "" if it needs none.
func (e endpoint) applied(m *teamv1.ModelConfig) (key string) {
	if m.GetBaseUrl() != "" && e.baseURL != "" {
		e.key = "" // a key from the environment is not sent to an address that the file names
	}
	m.Provider = compatible
	if m.GetBaseUrl() == "" {
		m.BaseUrl = e.baseURL
		if e.key == "" && m.GetPrice() == nil {
			m.Price = &teamv1.Price{} // a server of one's own
		}
	}
	return e.key
}

// meantProvider returns what to write in place of an unknown provider.
func meantProvider(word string) string {
	if known := synonyms[strings.ToLower(word)]; known != "" {
		return "write provider: " + known
	}
	known := append(slices.Collect(maps.Keys(endpoints)), "scripted")
	known = append(known, slices.Collect(maps.Keys(providers))...)
	return source.Suggest(strings.ToLower(word), known)
}
