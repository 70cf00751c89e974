package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/askuser"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/config/references"
	"github.com/agentteams/team-server/internal/config/source"
)

// markUsed marks everything that is served: all teams, the default agent, that for titles, agents that an addition
// defines, and what all of these refer to. If the file defines no teams, all agents are served.
func (k *checker) markUsed() {
	roots := sorted(k.Server.GetTeams())
	noTeams := !slices.ContainsFunc(roots, func(id string) bool { return k.additions[id] == "" })
	for _, id := range sorted(k.Server.GetAgents()) {
		if noTeams || k.additions[id] != "" {
			roots = append(roots, id)
		}
	}
	for _, id := range []string{k.Server.GetServer().GetDefaultAgent(), k.Server.GetServer().GetOpenai().GetTitleModel()} {
		if id != "" {
			roots = append(roots, id)
		}
	}
	for _, id := range references.Reach(k.Server, roots...) {
		k.Used[id] = true
	}
}

// user names a used agent, or a team, that uses a model or tool, or returns "". A model is also used as the fallback of
// another one.
func (k *checker) user(of references.Kind, name string) string {
	for _, id := range k.ids() {
		if !k.Used[id] && k.Server.GetTeams()[id] == nil {
			continue
		}
		for _, u := range k.uses[id] {
			if u.Kind == of && (u.Name == name || of == references.Model && slices.Contains(references.WithFallbacks(k.Server, u.Name), name)) {
				return u.By
			}
		}
	}
	return ""
}

// references checks the names in an agent or team.
func (k *checker) references(id string) {
	seen := map[[2]string]bool{}
	for _, u := range k.uses[id] {
		switch u.Kind {
		case references.Model:
			k.model(u)
		case references.Tool:
			k.tool(u, seen[[2]string{u.By, u.Name}])
			seen[[2]string{u.By, u.Name}] = true
		case references.Agent:
			if !k.known(u) && u.Path[2] == "members" {
				near := k.doc.Search(func() string { return source.Nearest(u.Name, k.ids()) })
				k.presumed[id] = append(k.presumed[id], near)
			}
		case references.Schema:
		}
	}
}

// known reports whether a use names an agent or a team. If it does not, known adds a fault, unless
// another fault in the file may be the reason.
func (k *checker) known(u references.Reference) bool {
	account := k.userAccount(u)
	if k.isAgent(u.Name) && k.visible(u.Name, account) {
		return k.usable(u)
	}
	if at := k.at(u.Path...); !k.at("agents").Damaged() && !k.at("teams").Damaged() {
		at.Fault(fmt.Sprintf("%s %q, which is not defined", u.By, u.Name), k.doc.Search(func() string { return k.suggestAgent(u, account) }))
	}
	return false
}

// isAgent reports whether an id is that of an agent or a team.
func (k *checker) isAgent(id string) bool {
	return k.Server.GetAgents()[id] != nil || k.Server.GetTeams()[id] != nil
}

// suggestAgent says so if the name is that of a model, else suggests the agent or team with the most similar name and the line that defines it, of
// those that an account may see.
func (k *checker) suggestAgent(u references.Reference, account string) string {
	id := u.Name
	switch isModel := account == "" && k.Server.GetModels()[id] != nil; {
	case isModel && len(u.Path) > 2 && u.Path[2] == "coordinator":
		return fmt.Sprintf("%q is a model: write coordinator: {model: %s}", id, id)
	case isModel:
		return fmt.Sprintf("%q is a model: name an agent that uses it", id)
	}
	all := slices.Concat(sorted(k.Server.GetAgents()), sorted(k.Server.GetTeams()))
	all = slices.DeleteFunc(all, func(id string) bool { return !k.visible(id, account) })
	near := source.Nearest(id, all)
	if near == "" {
		slices.Sort(all)
		return source.Listed(all)
	}
	return fmt.Sprintf("did you mean %q (%s)?", near, k.at(k.sectionOf(near), near).Describe())
}

// model reports a model name that is not defined.
func (k *checker) model(u references.Reference) {
	switch {
	case k.at("models").Damaged() || k.at(u.Path...).Damaged():
	case k.Server.GetModels()[u.Name] != nil:
		k.usable(u)
	default:
		k.at(u.Path...).Fault(fmt.Sprintf("%s uses model %q, which is not defined", u.By, u.Name), k.doc.Search(func() string {
			return cmp.Or(source.Suggest(u.Name, sorted(k.Server.GetModels())), "no models are defined; add it under models")
		}))
	}
}

// tool reports a tool that is not defined, or that is listed again.
func (k *checker) tool(u references.Reference, again bool) {
	switch at := k.at(u.Path...); {
	case k.at("tools").Damaged():
	case k.Server.GetTools()[u.Name] == nil:
		at.Fault(fmt.Sprintf("%s uses tool %q, which is not defined", u.By, u.Name), k.doc.Search(func() string {
			return toolHint(u.Name, sorted(k.Server.GetTools()))
		}))
	case again:
		at.Fault(fmt.Sprintf("%s has tool %q twice", u.By, u.Name), "remove one of them")
	default:
		k.usable(u)
	}
}

// toolHint returns what to do about a tool that is not defined.
func toolHint(name string, defined []string) string {
	switch near := source.Nearest(name, append(defined, askuser.Name)); {
	case near != "":
		return fmt.Sprintf("did you mean %q?", near)
	case len(defined) == 0:
		return "no tools are defined; add it under tools"
	}
	return source.Listed(defined)
}

// cycles reports teams that contain themselves, directly or through other teams.
func (k *checker) cycles() {
	done := map[string]bool{}
	for _, id := range append(sorted(k.Server.GetTeams()), sorted(k.Server.GetAgents())...) {
		k.visitForCycles(id, nil, done)
	}
}

// edge is a reference from one agent or team to another.
type edge struct {
	from string
	references.Reference
}

// visitForCycles follows the references of id depth first. trail is the path that led to id; done holds
// the ids that were visited completely.
func (k *checker) visitForCycles(id string, trail []edge, done map[string]bool) {
	for i, e := range trail {
		if e.from == id {
			k.reportCycle(trail[i:])
			return
		}
	}
	if done[id] {
		return
	}
	for _, u := range k.uses[id] {
		if u.Kind == references.Agent {
			k.visitForCycles(u.Name, append(trail, edge{id, u}), done)
		}
	}
	done[id] = true
}

// reportCycle reports a cycle of references.
func (k *checker) reportCycle(trail []edge) {
	var names, places []string
	if len(k.additions) > 0 { // report the cycle in the addition that closes it
		line := func(e edge) int { return k.at(e.Path...).Node().Line }
		last := slices.MaxFunc(trail, func(a, b edge) int { return cmp.Compare(line(a), line(b)) })
		i := slices.IndexFunc(trail, func(e edge) bool { return e.from == last.from })
		trail = slices.Concat(trail[i:], trail[:i])
	}
	for _, e := range trail {
		at := k.at(e.Path...)
		names, places = append(names, e.from), append(places, fmt.Sprintf("%s:%d", at.File(), at.Line()))
	}
	names = append(names, trail[0].from)
	k.at(trail[0].Path...).Fault("teams form a cycle: "+strings.Join(names, " -> "), strings.Join(places, " -> ")+"   break it by removing one member")
}

// inherits reports whether an agent uses the model of its team's leader.
func inherits(a *teamv1.AgentConfig) bool {
	return a != nil && a.GetModel() == "" && Kind(a) == "model"
}

// inheritance reports used agents that have no model and cannot use that of a leader: they are a
// member of a team without a leader, or of no team.
func (k *checker) inheritance() {
	for _, id := range sorted(k.Server.GetAgents()) {
		at := k.at("agents", id)
		if !k.Used[id] || !inherits(k.Server.GetAgents()[id]) || at.Damaged() || k.at("teams").Damaged() {
			continue
		}
		teams := slices.DeleteFunc(sorted(k.Server.GetTeams()), func(team string) bool { return !references.WorkTogether(k.Server, team, id) })
		unled := slices.IndexFunc(teams, func(team string) bool {
			t := k.Server.GetTeams()[team]
			return modes.Leader(t) == nil && t.GetWorkflow().GetPlan() == nil && t.GetProgram().GetModel() == ""
		})
		switch {
		case unled >= 0:
			at.KeyFault(fmt.Sprintf("agent %q has no model, and team %q has no leader whose model it could use", id, teams[unled]), "add model: the name of one under models")
		case len(teams) == 0:
			at.KeyFault(fmt.Sprintf("agent %q has no model, and is not a member of a team whose leader has one", id), "add model: the name of one under models")
		}
	}
}
