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
)

// model returns the model with a name, including its fallbacks. Each model is built only once.
func (b *builder) model(name string) (agent.Model, error) {
	if m, ok := b.models[name]; ok {
		return m, nil
	}
	m, err := b.withoutFallback(name)
	if err != nil {
		return nil, err
	}
	keys, models := []string{name}, []agent.Model{m}
	for _, next := range b.server.GetModels()[name].GetFallback() {
		other, err := b.withoutFallback(next)
		if err != nil {
			return nil, err
		}
		keys, models = append(keys, next), append(models, other)
	}
	if m, err = fallback.NewNamed(keys, models); err != nil { // also without a fallback, because halts name models by their keys
		return nil, fmt.Errorf("model %q: %w", name, err)
	}
	b.models[name] = m
	return m, nil
}

// withoutFallback returns the model with a name, without its fallbacks.
func (b *builder) withoutFallback(name string) (agent.Model, error) {
	if m, ok := b.single[name]; ok {
		return m, nil
	}
	m, err := b.newModel(name, b.server.GetModels()[name])
	if err != nil {
		return nil, fmt.Errorf("model %q: %w", name, err)
	}
	b.single[name] = m
	return m, nil
}

func (b *builder) newModel(name string, m *teamv1.ModelConfig) (agent.Model, error) {
	c := model.Config{
		Name: m.GetName(), BaseURL: m.GetBaseUrl(), APIKey: b.Definition.Secret(m.GetApiKey()), MaxOutput: int64(m.GetMaxOutputTokens()), IdleTimeout: m.GetIdleTimeout().AsDuration(),
		HTTPClient: b.Egress.HTTPClient(), // without a timeout; the context limits a turn
		Price:      model.PriceOf(m.GetPrice()), Accepts: m.GetAccepts(), ContextWindow: int64(m.GetContextWindow()),
		SendTraceparent: m.GetSendTraceparent(),
	}
	switch m.GetProvider() {
	case "scripted":
		return scripted.New(scripted.Config{Name: cmp.Or(m.GetName(), name), Script: b.Definition.Scripts[name], Price: m.GetPrice(), Accepts: m.GetAccepts()})
	case "openai":
		return openai.New(c)
	case "anthropic":
		return anthropic.New(c)
	case "gemini":
		return gemini.New(c)
	}
	return nil, fmt.Errorf("provider %q is not supported", m.GetProvider())
}
