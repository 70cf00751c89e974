package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/config/warnings"
)

// Warnings returns what is valid in the file and probably not meant.
func Warnings(c *Config) []warnings.Warning {
	all := warnings.Of(c.Server)
	for _, id := range sorted(c.Server.GetAgents()) {
		if !c.Used[id] {
			all = append(all, warnings.Warning{Path: "agents." + id, Message: "it is not served, because the file has teams and none of them uses it; add it to the members of a team, name it in server.default_agent, or remove it"})
		}
	}
	if c.document != nil {
		all = append(all, curly(c.document.Root(), "")...)
	}
	return all
}

// curly returns warnings about texts in typographic quotes, which are a part of the text in YAML. A text that is quoted as a
// whole, or that is a block, has them on purpose.
func curly(n *yaml.Node, path string) (all []warnings.Warning) {
	for key, value := range source.Pairs(n) {
		all = append(all, curly(value, strings.TrimPrefix(path+"."+key.Value, "."))...)
	}
	if n.Kind == yaml.SequenceNode {
		for i, item := range n.Content {
			all = append(all, curly(item, fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	if n.Kind == yaml.ScalarNode && n.Style == 0 && inCurly(n.Value) {
		all = append(all, warnings.Warning{Path: path, Message: `the quotes “ and ” are a part of the text, because YAML knows only ' and "; write these, or put the text with its quotes in ' if they are meant`})
	}
	return all
}

// inCurly reports whether a text has typographic quotes around it and no others of their kind in it.
func inCurly(text string) bool {
	const size = len("“")
	for _, quotes := range []string{"“”„", "‘’‚"} {
		if len(text) >= 2*size && strings.IndexAny(text, quotes) == 0 && strings.IndexAny(text[size:], quotes) == len(text)-2*size {
			return true
		}
	}
	return false
}
