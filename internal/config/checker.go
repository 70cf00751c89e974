package config

import (
	"slices"

	"github.com/agentteams/team-server/internal/config/references"
	"github.com/agentteams/team-server/internal/config/source"
)

// checker finds the faults that validation rules on single messages cannot: names that are not defined,
// cycles, and missing variables or files that a used part needs. What a single part may be is checked beside what it
// configures: a team in package modes, callers in package auth, limits in package account.
type checker struct {
	*Config
	doc      *source.Document
	env      func(string) (string, bool)
	gaps     []source.Missing
	uses     map[string][]references.Reference // by agent or team
	presumed map[string][]string               // by team: the agents that misspelled members were probably meant to be
	// keys are the variables with the keys of the models whose provider was the name of an endpoint, by model; "" if it needs none.
	keys map[string]string
}

// at returns the place of a value of the file.
func (k *checker) at(path ...any) source.Place { return k.doc.At(path...) }

// ids returns the ids of the agents and of the teams.
func (k *checker) ids() []string {
	return slices.Concat(sorted(k.Server.GetAgents()), sorted(k.Server.GetTeams()))
}

// sectionOf returns the section that has an agent or team.
func (k *checker) sectionOf(id string) string {
	if k.Server.GetTeams()[id] != nil && k.Server.GetAgents()[id] == nil {
		return "teams"
	}
	return "agents"
}
