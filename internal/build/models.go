package build

import (
	"cmp"
	"fmt"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
	"github.com/agentteams/team-server/pkg/model/anthropic"
	"github.com/agentteams/team-server/pkg/model/fallback"
	"github.com/agentteams/team-server/pkg/model/gemini"
	"github.com/agentteams/team-server/pkg/model/openai"
	"github.com/agentteams/team-server/pkg/model/scripted"
	"github.com/agentteams/team-server/pkg/secret"
)

// model returns the model with a name, including its fallbacks. Each model is built only once.
func (b *builder) model(name string) (agent.Model, error) {
	if m, ok := b.models[name]; ok {
		return m, nil
	}
	m, err := b.chain(name, b.withoutFallback)
	if err == nil {
		b.models[name] = m
	}
	return m, err
}

// modelWith returns the model with a name, including its fallbacks, with the settings of an agent or a leader.
func (b *builder) modelWith(name string, settings *teamv1.ModelSettings) (agent.Model, error) {
	if settings == nil {
		return b.model(name)
	}
	return b.chain(name, func(name string) (agent.Model, error) {
		m := b.server.GetModels()[name]
		return b.newModel(name, m, model.MergeSettings(m.GetSettings(), settings))
	})
}

// chain returns the model with a name and its fallbacks as one.
func (b *builder) chain(name string, build func(string) (agent.Model, error)) (agent.Model, error) {
	var models []agent.Model
	keys := append([]string{name}, b.server.GetModels()[name].GetFallback()...)
	for _, key := range keys {
		m, err := build(key)
		if err != nil {
			return nil, fmt.Errorf("model %q: %w", key, err)
		}
		models = append(models, m)
	}
	m, err := fallback.NewNamed(keys, models) // also without a fallback, because halts name models by their keys
	if err != nil {
		return nil, fmt.Errorf("model %q: %w", name, err)
	}
	return m, nil
}

// withoutFallback returns the model with a name, without its fallbacks.
func (b *builder) withoutFallback(name string) (agent.Model, error) {
	if m, ok := b.single[name]; ok {
		return m, nil
	}
	config := b.server.GetModels()[name]
	m, err := b.newModel(name, config, config.GetSettings())
	if err == nil {
		b.single[name] = m
	}
	return m, err
}

func (b *builder) newModel(name string, m *teamv1.ModelConfig, settings *teamv1.ModelSettings) (agent.Model, error) {
	c := model.Config{
		Name: m.GetName(), BaseURL: m.GetBaseUrl(), APIKey: b.Definition.Secret(m.GetApiKey()), MaxOutput: int64(m.GetMaxOutputTokens()), IdleTimeout: m.GetIdleTimeout().AsDuration(),
		HTTPClient: b.Egress.HTTPClient(), // without a timeout; the context limits a turn
		Price:      model.PriceOf(m.GetPrice()), Accepts: m.GetAccepts(), ContextWindow: int64(m.GetContextWindow()),
		SendTraceparent: m.GetSendTraceparent(), Settings: settings,
	}
	for header, value := range settings.GetHeaders() {
		if c.Headers == nil {
			c.Headers = map[string]secret.Secret{}
		}
		c.Headers[header] = b.Definition.Secret(value)
	}
	switch m.GetProvider() {
	case "scripted":
		return scripted.New(scripted.Config{Name: cmp.Or(m.GetName(), name), Script: b.Definition.Scripts[name], Price: m.GetPrice(), Accepts: m.GetAccepts(), Used: b.used})
	case "openai":
		return openai.New(c)
	case "anthropic":
		return anthropic.New(c)
	case "gemini":
		return gemini.New(c)
	}
	return nil, fmt.Errorf("provider %q is not supported", m.GetProvider())
}
