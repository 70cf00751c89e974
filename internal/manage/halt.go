package manage

import (
	"maps"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// HaltNames returns the names of a kind of subject that can be halted. all is false for the kinds
// whose names are not all known here: accounts, and tools, whose names their servers choose.
func (m *Manager) HaltNames(kind teamv1.HaltKind) (names []string, all bool) {
	def := m.c.Live.Definition().Server
	switch kind {
	case teamv1.HaltKind_HALT_KIND_TEAM:
		return slices.Sorted(maps.Keys(def.GetTeams())), true
	case teamv1.HaltKind_HALT_KIND_AGENT:
		return slices.Sorted(maps.Keys(def.GetAgents())), true
	case teamv1.HaltKind_HALT_KIND_MODEL:
		for key, model := range def.GetModels() {
			names = append(names, key)
			if model.GetName() != "" {
				names = append(names, model.GetName())
			}
		}
		slices.Sort(names)
		return slices.Compact(names), true
	default:
		return nil, false
	}
}
