package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Addition is a document in the form of a file that is kept somewhere else: it
// holds agents and teams alone, and uses the models and tools of the file by their
// names. It comes from whoever may manage teams, not from who runs the server: so
// it names no file of the server, none of its variables, and no secret.
type Addition struct {
	// Name stands in faults where the path of a file does. Each is there once.
	Name string
	// Data is the document.
	Data []byte
}

// With returns the same file with additions, in the place of those that it had.
// The file is not read again, those that it names are.
func (c *Config) With(additions []Addition) (*Config, error) {
	l := c.loader
	l.Additions = additions
	return l.Parse(c.File, c.source)
}

// part is where the lines of an addition are.
type part struct {
	file  string
	after int // how many lines are before it
}

// ownLines is how many lines the file itself has.
func (d *document) ownLines() int {
	if len(d.added) == 0 {
		return len(d.lines)
	}
	return d.added[0].after
}

// text is the file itself, with an empty line for each that was added: the decoder
// looks at lines where it finds faults.
func (d *document) text() []byte {
	own := d.ownLines()
	return []byte(strings.Join(d.lines[:own], "\n") + strings.Repeat("\n", len(d.lines)-own))
}

// locate is the file of a line, and its number there.
func (d *document) locate(line int) (file string, own int) {
	for i := len(d.added) - 1; i >= 0; i-- {
		if p := d.added[i]; line > p.after {
			return p.file, line - p.after
		}
	}
	return d.file, line
}

// line is the line of a node in its own file.
func (d *document) line(n *yaml.Node) int {
	_, line := d.locate(n.Line)
	return line
}

// stands is where a node stands, in words. Who wrote an addition does not see the file.
func (d *document) stands(n *yaml.Node) string {
	file, line := d.locate(n.Line)
	switch {
	case file != d.file:
		return "line " + itoa(line) + " of " + file
	case len(d.added) > 0:
		return "the file of the server"
	}
	return "line " + itoa(line)
}

// add puts the agents and teams of an addition beside those that are there.
func (d *document) add(a Addition) {
	own := parse(a.Name, a.Data)
	if own.root == nil || len(own.faults) > 0 {
		d.faults = append(d.faults, own.faults...)
		return
	}
	d.added = append(d.added, part{file: a.Name, after: len(d.lines)})
	shift(own.root, len(d.lines))
	d.lines = append(d.lines, own.lines...)
	maps.Copy(d.names, own.names)
	d.entries(own.root, func(key, value *yaml.Node) bool {
		switch key.Value {
		case "version":
			if value.Value != "v1" && value.Value != "v2" {
				d.fault(value, "version "+quote(value.Value)+" is unknown", "write version: v2, or leave it out")
			}
		case "agents", "teams":
			d.addTo(key, value)
		default:
			d.fault(key, quote(key.Value)+" belongs to the file of the server", "only agents and teams can be here; models and tools of the file are used by their names")
		}
		return true
	})
}

func shift(n *yaml.Node, lines int) {
	n.Line += lines
	for _, c := range n.Content {
		shift(c, lines)
	}
}

// addTo puts the entries of a section beside those that are there.
func (d *document) addTo(key, value *yaml.Node) {
	if value.Kind != yaml.MappingNode {
		d.fault(value, "expected agents or teams by id, got "+kindOf(value), "write ID: {...}")
		return
	}
	_, section := child(d.root, key.Value)
	if section == nil {
		section = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: value.Line, Column: value.Column}
		d.root.Content = append(d.root.Content, key, section)
	}
	for i := 0; i+1 < len(value.Content); i += 2 {
		id, entry := value.Content[i], value.Content[i+1]
		if known := d.defined(id.Value); known != nil {
			d.fault(id, quote(id.Value)+" is there already", "choose another id; this one is defined in "+d.stands(known))
			continue
		}
		d.noVariables(entry)
		section.Content = append(section.Content, id, entry)
	}
}

// defined is the key of an agent or team, nil without one.
func (d *document) defined(id string) *yaml.Node {
	if key := d.keyOf("agents", id); key != nil {
		return key
	}
	return d.keyOf("teams", id)
}

// keyOf is the key of an entry, nil without one.
func (d *document) keyOf(section, id string) *yaml.Node {
	_, entries := child(d.root, section)
	if entries == nil {
		return nil
	}
	key, _ := child(entries, id)
	return key
}

// noVariables refuses references to what only the server knows.
func (d *document) noVariables(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "${") {
		d.fault(n, "variables and files of the server cannot be used here", "write the value itself; what holds a secret belongs to the file of the server")
		n.Value = strings.ReplaceAll(n.Value, "${", "")
	}
	for _, c := range n.Content {
		d.noVariables(c)
	}
}

// foreign refuses what an addition may not say of its agents and teams: names of
// files, and secrets. It takes them out, so that nobody looks whether they are there.
func (d *document) foreign(c *teamv1.ServerConfig) {
	const file, secret = "names a file, which only the file of the server can", "holds a secret, which only the file of the server can"
	for id, a := range c.GetAgents() {
		if !d.isAdded("agents", id) {
			continue
		}
		refuse := func(set bool, why string, path ...any) bool {
			if set {
				d.fault(d.keyAt(append([]any{"agents", id}, path...)...), quote(fmt.Sprint(path[len(path)-1]))+" "+why, "define the agent in the file of the server")
			}
			return set
		}
		if refuse(a.GetOutputSchema() != "", file, "output_schema") {
			a.OutputSchema = ""
		}
		if refuse(len(schemasOf(a.GetGuardrails(), "")) > 0, file, "guardrails") {
			a.Guardrails = nil
		}
		if refuse(len(a.GetA2A().GetTrustedKeys()) > 0, file, "a2a", "trusted_keys") {
			a.A2A.TrustedKeys = nil
		}
		if refuse(a.GetGrpc().GetTls().GetCa() != "", file, "grpc", "tls", "ca") {
			a.Grpc.Tls.Ca = ""
		}
		refuse(a.GetA2A().GetAuth() != nil, secret, "a2a", "auth")
		refuse(a.GetGrpc().GetAuth() != nil, secret, "grpc", "auth")
	}
	for id, t := range c.GetTeams() {
		if d.isAdded("teams", id) && len(schemasOf(t.GetGuardrails(), "")) > 0 {
			d.fault(d.keyAt("teams", id, "guardrails"), quote("guardrails")+" "+file, "define the team in the file of the server")
			t.Guardrails = nil
		}
	}
}

// Addition is the name of the addition that an agent or team came with; empty is
// none: it is in the file.
func (c *Config) Addition(id string) string { return c.additions[id] }

// Added returns the ids of the agents and teams that came with an addition, sorted.
func (c *Config) Added(name string) []string {
	var ids []string
	for id, with := range c.additions {
		if with == name {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Beside returns a configuration that serves what c serves, and what others brought
// by their additions besides. They are of the same file.
func (c *Config) Beside(others map[string]*Config) *Config {
	all := *c
	all.Server = &teamv1.ServerConfig{
		Version: c.Server.GetVersion(), Models: c.Server.GetModels(), Tools: c.Server.GetTools(), Server: c.Server.GetServer(),
		Agents: maps.Clone(c.Server.GetAgents()), Teams: maps.Clone(c.Server.GetTeams()),
	}
	all.Used, all.additions = maps.Clone(c.Used), map[string]string{}
	if all.Server.Agents == nil {
		all.Server.Agents = map[string]*teamv1.AgentConfig{}
	}
	if all.Server.Teams == nil {
		all.Server.Teams = map[string]*teamv1.TeamConfig{}
	}
	for name, other := range others {
		for id, with := range other.additions {
			if with != name {
				continue
			}
			all.additions[id], all.Used[id] = with, true
			if a := other.Server.GetAgents()[id]; a != nil {
				all.Server.Agents[id] = a
			} else {
				all.Server.Teams[id] = other.Server.GetTeams()[id]
			}
		}
	}
	return &all
}

// origins are the additions that agents and teams came with, by id.
func (d *document) origins() map[string]string {
	from := map[string]string{}
	for _, section := range []string{"agents", "teams"} {
		_, entries := child(d.root, section)
		if entries == nil || entries.Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i+1 < len(entries.Content); i += 2 {
			if key := entries.Content[i]; key.Line > d.ownLines() {
				from[key.Value], _ = d.locate(key.Line)
			}
		}
	}
	return from
}

// isAdded reports whether an entry came with an addition.
func (d *document) isAdded(section, id string) bool {
	key := d.keyOf(section, id)
	return key != nil && key.Line > d.ownLines()
}

// Text returns the text of the addition.
func (a Addition) Text() *Text { return parse(a.Name, a.Data).Text }

// Outline is what an addition is about, without a look at what it says.
type Outline struct {
	// Agents and Teams are the ids that it defines, in its order.
	Agents, Teams []string
	// Words are all its keys and values: what it names is among them.
	Words map[string]bool

	root *yaml.Node
}

// Outline reads an addition. The error is Faults.
func (a Addition) Outline() (*Outline, error) {
	d := parse(a.Name, a.Data)
	if d.root == nil || len(d.faults) > 0 {
		return nil, tidy(d.faults)
	}
	ids := func(section string) (list []string) {
		if _, entries := child(d.root, section); entries != nil && entries.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(entries.Content); i += 2 {
				list = append(list, entries.Content[i].Value)
			}
		}
		return list
	}
	o := &Outline{Agents: ids("agents"), Teams: ids("teams"), Words: map[string]bool{}, root: d.root}
	o.read(d.root)
	return o, nil
}

func (o *Outline) read(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		o.Words[n.Value] = true
	}
	for _, c := range n.Content {
		o.read(c)
	}
}

// Path returns the keys and indexes that lead to a place in the addition, as far as
// there are any.
func (o *Outline) Path(line, col int) []any {
	var path []any
	for n := o.root; n != nil; {
		var next *yaml.Node
		var step any
		for i := 0; i < len(n.Content); i++ {
			key, value, at := n.Content[i], n.Content[i], any(i)
			if n.Kind == yaml.MappingNode {
				i++
				value, at = n.Content[i], key.Value
			}
			if key.Line < line || key.Line == line && key.Column <= col {
				next, step = value, at
			}
		}
		if next != nil {
			path = append(path, step)
		}
		n = next
	}
	return path
}
