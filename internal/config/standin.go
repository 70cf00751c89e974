package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

// StandIns replaces models, tools and remote agents, so that teams run without a model, a network or a
// key. Models and remote agents without a replacement exist by name only; Config.Absent returns
// them. Of the settings under server, only default_agent applies.
type StandIns struct {
	// Models holds scripts that replace models, by model name; AllModels replaces those that are not in it.
	Models map[string]Script
	// Agents holds definitions of scripted agents that replace agents, by id.
	Agents map[string]*yaml.Node
	// Tools holds scripts that replace MCP servers, by name.
	Tools map[string]*teamv1.ToolScript
	// RealModels leaves the models as they are. Tools without a replacement are then absent as well.
	RealModels bool
}

// AllModels is the key, in StandIns.Models, of the script of all models that have none of their own.
const AllModels = "*"

// Script is a script of a scripted model, with its source.
type Script struct {
	Script *scripted.Script
	Source []byte
}

// standIns records what was replaced in a configuration.
type standIns struct {
	played map[string]Script             // by model
	tools  map[string]*teamv1.ToolScript // by tool, without those that are started
	absent map[string]bool               // ids of agents, modelKeys of models and toolKeys of tools that have no replacement

	replaced map[string]bool // paths of agents, and of tools of a program, that have a replacement
}

// noScript is the script of models without a replacement. It matches no agent.
const noScript = "agents: {nobody: [{text: none}]}"

// standIn replaces models and agents, before anything is checked.
func standIn(root *yaml.Node, s *StandIns) standIns {
	in := standIns{played: map[string]Script{}, tools: map[string]*teamv1.ToolScript{}, absent: map[string]bool{}, replaced: map[string]bool{}}
	if s == nil {
		return in
	}
	if server := source.Value(root, "server"); server != nil {
		keep(server, "default_agent")
	}
	eachOf(root, "tools", func(name string, n *yaml.Node) { in.tool(s, name, n) })
	eachOf(root, "models", func(name string, n *yaml.Node) {
		if !s.RealModels {
			in.model(s, name, n)
		}
	})
	eachOf(root, "agents", func(id string, n *yaml.Node) {
		steps, replaced := s.Agents[id]
		switch {
		case replaced:
			in.replaced["agents."+id] = true
		case source.Value(n, "grpc") != nil || source.Value(n, "a2a") != nil:
			steps = parseNode("{steps: [{echo: true}]}")
			in.absent[id] = true
		default:
			return
		}
		keep(n, "name", "description", "skills")
		put(n, "scripted", steps)
	})
	return in
}

// tool notes whether a tool is absent. One that is never called needs no credentials.
func (in *standIns) tool(s *StandIns, name string, n *yaml.Node) {
	script := s.Tools[name]
	if script != nil && !script.GetStart() && source.Value(n, "program") != nil { // an MCP server plays its script
		in.replaced["tools."+name] = true
		keep(n, "api")
		put(n, "mcp", parseNode("{command: [script]}"))
	}
	mcp := source.Value(n, "mcp")
	if script.GetStart() || mcp == nil || mcp.Kind != yaml.MappingNode {
		return
	}
	if script != nil {
		in.tools[name] = script
	}
	url := source.Value(mcp, "url") != nil
	in.absent[toolKey(name)] = script == nil && (url || s.RealModels)
	if script != nil || url {
		remove(mcp, "bearer", "oauth", "headers", "env")
	}
}

func (in *standIns) model(s *StandIns, name string, n *yaml.Node) {
	script, replaced := s.Models[name]
	if all, ok := s.Models[AllModels]; ok && !replaced {
		script, replaced = all, true
	}
	provider := source.Value(n, "provider")
	switch {
	case replaced:
	case provider == nil || provider.Value == "scripted":
		return
	default:
		parsed, err := scripted.Parse(name, []byte(noScript))
		if err != nil {
			return // noScript is valid
		}
		script = Script{parsed, []byte(noScript)}
		in.absent[modelKey(name)] = true
	}
	in.played[name] = script
	if provider != nil && provider.Value != "scripted" { // a stand-in needs no key
		address := source.Value(n, "base_url")
		remove(n, "api_key", "base_url")
		put(n, "api_key", parseNode("none"))
		if address != nil && strings.Contains(address.Value, "$") {
			address = parseNode("http://127.0.0.1") // for its price, any address of one's own is alike
		}
		if address != nil {
			put(n, "base_url", address)
		}
	}
}

// modelKey returns the key of a model in standIns.absent, toolKey that of a tool.
func modelKey(name string) string { return "model " + name }
func toolKey(name string) string  { return "tool " + name }

// eachOf calls f for each entry of a section that is a mapping.
func eachOf(root *yaml.Node, section string, f func(key string, value *yaml.Node)) {
	for key, value := range source.Pairs(source.Value(root, section)) {
		if value.Kind == yaml.MappingNode {
			f(key.Value, value)
		}
	}
}

// keep removes all keys of a mapping except the given ones.
func keep(n *yaml.Node, keys ...string) {
	filter(n, func(key string) bool { return slices.Contains(keys, key) })
}

// remove removes the given keys of a mapping.
func remove(n *yaml.Node, keys ...string) {
	filter(n, func(key string) bool { return !slices.Contains(keys, key) })
}

func filter(n *yaml.Node, keep func(key string) bool) {
	var kept []*yaml.Node
	for key, value := range source.Pairs(n) {
		if keep(key.Value) {
			kept = append(kept, key, value)
		}
	}
	n.Content = kept
}

// put adds a key to a mapping. The new nodes get the position of the mapping.
func put(n *yaml.Node, key string, value *yaml.Node) {
	n.Content = append(n.Content, copyAt(parseNode(key), n), copyAt(value, n))
}

// copyAt returns a copy of a node with the position of another one.
func copyAt(n, to *yaml.Node) *yaml.Node {
	c := *n
	c.Line, c.Column, c.Content = to.Line, to.Column, nil
	for _, part := range n.Content {
		c.Content = append(c.Content, copyAt(part, to))
	}
	return &c
}

// parseNode parses YAML text into a node. Invalid YAML becomes a scalar.
func parseNode(text string) *yaml.Node {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil || len(n.Content) == 0 {
		return &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	}
	return n.Content[0]
}
