package config

import (
	"cmp"
	"fmt"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/references"
	"github.com/agentteams/team-server/internal/config/source"
)

// LeftToProgram returns the paths of the agents, tools and teams that a file leaves to the program that loads it.
func LeftToProgram(c *teamv1.ServerConfig) (paths []string) {
	for _, p := range partsOf(c, Program{}) {
		for _, name := range p.left {
			paths = append(paths, p.section+"."+name)
		}
	}
	return paths
}

// parts are what a section of the file leaves to the program, and what that brings to the section.
type parts struct {
	section, word, field string
	left, brought        []string // sorted names
}

// partsOf returns the parts of all sections.
func partsOf(c *teamv1.ServerConfig, p Program) []parts {
	return []parts{
		{"agents", "agent", "Agents", leftIn(c.GetAgents(), func(a *teamv1.AgentConfig) bool { return a.GetProgram() != nil }), given(p.Agents)},
		{"tools", "tool", "Tools", leftIn(c.GetTools(), func(t *teamv1.ToolConfig) bool { return t.GetProgram() != nil }), given(p.Tools)},
		{"teams", "scheduler of team", "Schedulers", leftIn(c.GetTeams(), func(t *teamv1.TeamConfig) bool { return t.GetProgram() != nil }), given(p.Schedulers)},
	}
}

// given returns the names of the parts that are not nil.
func given[V any](parts map[string]V) []string {
	return slices.DeleteFunc(sorted(parts), func(name string) bool { return any(parts[name]) == nil })
}

// leftIn returns the names of the entries of a section that are left to the program.
func leftIn[V any](section map[string]V, left func(V) bool) []string {
	return slices.DeleteFunc(sorted(section), func(name string) bool { return !left(section[name]) })
}

// check reports what is in use and the program that loads the file does not have, and what that has and the file does not
// leave to it.
func (p parts) check(k *checker) {
	for _, name := range p.left {
		used := k.Used[name]
		if p.section == "tools" {
			used = k.user(references.Tool, name) != ""
		}
		if used && !slices.Contains(p.brought, name) {
			p.missing(k, name)
		}
	}
	for _, name := range p.brought {
		if !slices.Contains(p.left, name) {
			p.stray(k, name)
		}
	}
}

// missing reports a part that the program does not have.
func (p parts) missing(k *checker, name string) {
	at := k.at(p.section, name, "program")
	switch {
	case k.loader.AnyProgram:
	case k.loader.Program == nil:
		at.KeyFault(fmt.Sprintf("the %s %q is part of a Go program, which team-server is not", p.word, name), "serve the file with that program; docs/go-library.md says how")
	default:
		at.KeyFault(fmt.Sprintf("the %s %q is missing in the program", p.word, name), "add it to "+p.field+" there")
	}
}

// stray reports a part of the program that the file does not leave to it, unless it is replaced for a test.
func (p parts) stray(k *checker, name string) {
	at := k.at(p.section, name)
	switch {
	case k.replaced[p.section+"."+name]:
	case at.Found():
		at.KeyFault(fmt.Sprintf("the program has the %s %q, which the file describes otherwise", p.word, name), "write program: {} here, or remove it from "+p.field+" in the program")
	default:
		hint := cmp.Or(source.Suggest(name, p.left), fmt.Sprintf("add %s: {program: {}} under %s", name, p.section))
		k.at(p.section).KeyFault(fmt.Sprintf("the program has the %s %q, which is not in the file", p.word, name), hint)
	}
}
