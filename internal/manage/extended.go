package manage

import (
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
)

// ExtendedCards returns the extended cards that the configuration has for an agent or team.
func (g *Registry) ExtendedCards(id string) []a2a.ExtendedCard {
	server := g.Served().Server
	var from []*teamv1.ExtendedCard
	if t := server.GetTeams()[id]; t != nil {
		from = t.GetExtendedCard()
	} else {
		from = server.GetAgents()[id].GetExtendedCard()
	}
	var cards []a2a.ExtendedCard
	for _, c := range from {
		cards = append(cards, a2a.ExtendedCard{For: c.GetFor(), Description: c.GetDescription(), Skills: c.GetSkills()})
	}
	return cards
}
