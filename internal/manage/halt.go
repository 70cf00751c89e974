package manage

import (
	"context"
	"iter"
	"maps"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// HaltNames returns the names of a kind of subject that can be halted, as far as the caller of ctx may
// see them. all is false for the kinds
// whose names are not all known here: accounts, and tools, whose names their servers choose.
func (m *Manager) HaltNames(ctx context.Context, kind teamv1.HaltKind) (names []string, all bool) {
	def := m.c.Live.Definition().Server
	switch kind {
	case teamv1.HaltKind_HALT_KIND_TEAM:
		return m.seen(ctx, maps.Keys(def.GetTeams())), true
	case teamv1.HaltKind_HALT_KIND_AGENT:
		return m.seen(ctx, maps.Keys(def.GetAgents())), true
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

// seen returns those of some ids that the caller of ctx may see, sorted.
func (m *Manager) seen(ctx context.Context, ids iter.Seq[string]) []string {
	return slices.DeleteFunc(slices.Sorted(ids), func(id string) bool { return !m.sees(ctx, id) })
}

// InAccount reports whether an agent or team belongs to an account that has made it by the API.
func (m *Manager) InAccount(account, id string) bool {
	s := m.served.Load()
	e := s.entries[s.owners[id]]
	return e != nil && accountOf(e.Entry) == account
}
