package manage

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// HaltNames returns the names of a kind of subject that can be halted, as far as the caller of ctx may
// see them. all is false for the kinds
// whose names are not all known here: accounts, and tools, whose names their servers choose.
func (g *Registry) HaltNames(ctx context.Context, kind teamv1.HaltKind) (names []string, all bool) {
	def := g.Served().Server
	switch kind {
	case teamv1.HaltKind_HALT_KIND_TEAM:
		return g.seen(ctx, maps.Keys(def.GetTeams())), true
	case teamv1.HaltKind_HALT_KIND_AGENT:
		return g.seen(ctx, maps.Keys(def.GetAgents())), true
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

// ModelNames returns the name that the model with a key of the configuration has at its provider, if there is one.
func (g *Registry) ModelNames(key string) []string {
	if name := g.Served().Server.GetModels()[key].GetName(); name != "" {
		return []string{name}
	}
	return nil
}

// seen returns those of some ids that the caller of ctx may see, sorted.
func (g *Registry) seen(ctx context.Context, ids iter.Seq[string]) []string {
	return slices.DeleteFunc(slices.Sorted(ids), func(id string) bool { return !g.sees(ctx, id) })
}

// AccountOf returns the account that has made an agent or a team by the API, even if it cannot be served, and "" for one
// of the configuration file.
func (g *Registry) AccountOf(id string) string {
	s := g.state()
	if g.InFile(id) {
		return ""
	}
	if e := s.entries[cmp.Or(s.owners[id], id)]; e != nil {
		return e.Account
	}
	return ""
}
