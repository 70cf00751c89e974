package config

import (
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/references"
	"github.com/agentteams/team-server/internal/prices"
	"github.com/agentteams/team-server/pkg/model/anthropic"
	"github.com/agentteams/team-server/pkg/model/gemini"
	"github.com/agentteams/team-server/pkg/model/openai"
)

// ship gives the models that have no price, and are called at the address of a provider, the prices that the program ships
// with, and returns their names. These prices become part of the definitions that runs begin with, like those of the file.
func ship(models map[string]*teamv1.ModelConfig) map[string]bool {
	shipped := map[string]bool{}
	for name, m := range models {
		if m.GetPrice() == nil {
			m.Price = prices.Of(sellerOf(m), m.GetName())
			shipped[name] = m.GetPrice() != nil
		}
	}
	return shipped
}

// sellerOf returns the word for the provider at whose address a model is called; "" if the address is another one.
func sellerOf(m *teamv1.ModelConfig) string {
	address := strings.TrimRight(m.GetBaseUrl(), "/")
	if address == "" || address == addresses[m.GetProvider()] {
		return m.GetProvider()
	}
	for word, e := range endpoints {
		if m.GetProvider() == compatible && address == e.baseURL {
			return word
		}
	}
	return ""
}

// addresses are those of the providers, by their words.
var addresses = map[string]string{"openai": openai.DefaultBaseURL, "anthropic": anthropic.DefaultBaseURL, "gemini": gemini.DefaultBaseURL}

// varies reports whether requests of an agent or team may cost more than the price of a model that the program ships with:
// fields such as service_tier can choose another one.
func varies(c *Config, id, model string) bool {
	if !c.Shipped[model] {
		return false
	}
	settings := []*teamv1.ModelSettings{
		c.Server.GetModels()[model].GetSettings(), c.Server.GetAgents()[id].GetSettings(), c.Server.GetTeams()[id].GetCoordinator().GetLeader().GetSettings(),
	}
	if inherits(c.Server.GetAgents()[id]) { // the model of its leader, with the settings of that
		for name, team := range c.Server.GetTeams() {
			if references.WorkTogether(c.Server, name, id) {
				settings = append(settings, team.GetCoordinator().GetLeader().GetSettings())
			}
		}
	}
	for _, s := range settings {
		if len(s.GetExtraBody().GetFields()) > 0 {
			return true
		}
	}
	return false
}
