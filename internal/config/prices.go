package config

import (
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/prices"
)

// ship gives the models that have no price, and whose provider sells them at its own address, the prices that the program
// ships with, and returns their names. These prices become part of the definitions that runs begin with, like those of the
// file. named are the endpoints of models whose provider was the name of one.
func ship(models map[string]*teamv1.ModelConfig, named map[string]endpoint) map[string]bool {
	shipped := map[string]bool{}
	for name, m := range models {
		seller, address := m.GetProvider(), ""
		if e, ok := named[name]; ok {
			seller, address = e.name, e.baseURL
		}
		if m.GetPrice() == nil && m.GetBaseUrl() == address {
			m.Price = prices.Of(seller, m.GetName())
			shipped[name] = m.GetPrice() != nil
		}
	}
	return shipped
}

// varies reports whether requests of an agent or team may cost more than the price of a model that the program ships with:
// fields such as service_tier can choose another one.
func varies(c *Config, id, model string) bool {
	if !c.Shipped[model] {
		return false
	}
	settings := []*teamv1.ModelSettings{
		c.Server.GetModels()[model].GetSettings(), c.Server.GetAgents()[id].GetSettings(), c.Server.GetTeams()[id].GetCoordinator().GetLeader().GetSettings(),
	}
	for _, s := range settings {
		if len(s.GetExtraBody().GetFields()) > 0 {
			return true
		}
	}
	return false
}
