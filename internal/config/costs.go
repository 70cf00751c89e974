package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/config/references"
)

// Uncounted is a model or an agent whose cost in money is not known, although max_cost or a limit of
// an account limits it: what it costs counts as nothing.
type Uncounted struct {
	// Limited is the team or agent with max_cost. If an account has the limit, it is the team or
	// agent that uses the model, or is the agent.
	Limited string
	// ByAccount says that an account has the limit.
	ByAccount bool
	// Model or Agent is set.
	Model, Agent string
	// Varies says that the model has a price that the program ships with, which its requests may not have.
	Varies bool
}

// String describes the fault.
func (u Uncounted) String() string {
	limit := fmt.Sprintf("max_cost of %q limits it", u.Limited)
	if u.ByAccount {
		limit = "server.accounts limits the cost of an account"
	}
	switch {
	case u.Varies:
		return fmt.Sprintf("model %q has no price of its own, extra_body may change what it costs, and %s", u.Model, limit)
	case u.Model != "":
		return fmt.Sprintf("model %q has no price, and %s", u.Model, limit)
	}
	return fmt.Sprintf("agent %q has no cost_per_task, and %s", u.Agent, limit)
}

// Fix says how to correct the fault.
func (u Uncounted) Fix() string {
	if u.Model != "" {
		return "add price: {input: X, output: Y} in USD per million tokens, or price: {input: 0, output: 0} if it costs nothing"
	}
	return "add cost_per_task: X in USD, or cost_per_task: 0 if the agent reports its cost or costs nothing"
}

// costs reports models and agents whose cost max_cost cannot limit. What an addition defines is not
// rejected, so that a change of the file cannot make it unusable; see Uncounted.
func (k *checker) costs() {
	said := map[[2]string]bool{}
	for _, u := range k.Uncounted() {
		if k.additions[u.Limited] != "" || said[[2]string{u.Model, u.Agent}] {
			continue
		}
		said[[2]string{u.Model, u.Agent}] = true
		at := k.at("models", u.Model)
		if u.Agent != "" {
			at = k.at("agents", u.Agent, "a2a")
		}
		at.ReportKey("", u.String(), u.Fix())
	}
}

// Uncounted returns the models and agents in use whose cost max_cost or a limit of an account cannot
// limit.
func (c *Config) Uncounted() (all []Uncounted) {
	limited := map[string]bool{}
	for id, a := range c.Server.GetAgents() {
		limited[id] = a.GetLimits() != nil && a.GetLimits().MaxCost != nil
	}
	for id, t := range c.Server.GetTeams() {
		limited[id] = t.GetLimits() != nil && t.GetLimits().MaxCost != nil
	}
	for _, id := range sorted(limited) {
		if !limited[id] || !c.Used[id] {
			continue
		}
		seen := map[string]bool{}
		for _, below := range references.Reach(c.Server, id) {
			for _, u := range c.unpriced(below, below == id) {
				if u.Model == "" || !seen[u.Model] {
					u.Limited, seen[u.Model] = id, true
					all = append(all, u)
				}
			}
		}
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(c.Server.GetServer().GetAccounts())), account.LimitsMoney) {
		return all
	}
	for _, id := range sorted(limited) {
		if !c.Used[id] {
			continue
		}
		for _, u := range c.unpriced(id, false) {
			u.Limited, u.ByAccount = id, true
			all = append(all, u)
		}
	}
	return all
}

// Unpriced returns the models without a price that an agent or team reaches.
func Unpriced(c *Config, id string) (all []Uncounted) {
	seen := map[string]bool{}
	for _, below := range references.Reach(c.Server, id) {
		for _, u := range c.unpriced(below, below == id) {
			if u.Model != "" && !seen[u.Model] {
				seen[u.Model] = true
				all = append(all, u)
			}
		}
	}
	return all
}

// unpriced returns the agent with this id, if its cost is not known, and the models that the agent or
// team uses itself and that have no price; with inherited also those of its leaders, see inherited.
func (c *Config) unpriced(id string, inherited bool) (all []Uncounted) {
	if a := c.Server.GetAgents()[id].GetA2A(); a != nil && a.CostPerTask == nil {
		all = append(all, Uncounted{Agent: id})
	}
	models := references.Models(c.Server, id)
	if inherited {
		models = append(models, c.inherited(id)...)
	}
	for _, name := range models {
		m, varies := c.Server.GetModels()[name], varies(c, id, name)
		if m != nil && m.GetProvider() != "scripted" && (m.GetPrice() == nil || varies) {
			all = append(all, Uncounted{Model: name, Varies: varies})
		}
	}
	return all
}

// inherited returns the models of the leaders that an agent without a model of its own works for,
// including their fallbacks.
func (c *Config) inherited(id string) (all []string) {
	if !inherits(c.Server.GetAgents()[id]) {
		return nil
	}
	for _, team := range sorted(c.Server.GetTeams()) {
		if references.WorkTogether(c.Server, team, id) {
			all = append(all, references.WithFallbacks(c.Server, modes.LeaderModel(c.Server.GetTeams()[team]))...)
		}
	}
	return all
}
