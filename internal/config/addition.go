package config

import (
	"fmt"
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

// stands is where a node stands, in words.
func (d *document) stands(n *yaml.Node) string {
	file, line := d.locate(n.Line)
	if file == d.file {
		return "line " + itoa(line)
	}
	return "line " + itoa(line) + " of " + file
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
	d.entries(own.root, func(key, value *yaml.Node) bool {
		switch key.Value {
		case "version":
			if value.Value != "v1" {
				d.fault(value, "version "+quote(value.Value)+" is unknown", "write version: v1, or leave it out")
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
func (c *Config) Addition(id string) string {
	if c.document == nil {
		return ""
	}
	key := c.document.defined(id)
	if key == nil || key.Line <= c.document.ownLines() {
		return ""
	}
	file, _ := c.document.locate(key.Line)
	return file
}

// isAdded reports whether an entry came with an addition.
func (d *document) isAdded(section, id string) bool {
	key := d.keyOf(section, id)
	return key != nil && key.Line > d.ownLines()
}

// Outline returns the ids of the agents and the teams of an addition, in its order,
// without a look at what they are.
func Outline(a Addition) (agents, teams []string, faults Faults) {
	d := parse(a.Name, a.Data)
	if d.root == nil || len(d.faults) > 0 {
		return nil, nil, tidy(d.faults)
	}
	ids := func(section string) (list []string) {
		if _, entries := child(d.root, section); entries != nil && entries.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(entries.Content); i += 2 {
				list = append(list, entries.Content[i].Value)
			}
		}
		return list
	}
	return ids("agents"), ids("teams"), nil
}
