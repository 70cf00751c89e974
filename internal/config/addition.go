package config

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Addition is a document with the syntax of the configuration file that is stored outside of it,
// for example in the database. It defines only agents and teams, and refers to the file's models
// and tools by name. Its author may manage teams but does not run the server, so it must not name
// files or environment variables of the server, and must not hold secrets.
type Addition struct {
	// Name appears in faults in place of a file path. Names are unique.
	Name string
	// Data is the YAML text.
	Data []byte
	// Account is the account to which the addition belongs, "" if none is known. Of what the file defines,
	// it may use only what is marked with api, and no agent or team that some callers of the account may not
	// use, unless Open is true or Account is "".
	Account string
	// Open means that the addition may use everything that the file defines.
	Open bool
}

// With parses the same file again with the given additions, which replace those c was loaded with.
// The file itself is not read again, but the files that it names are. If ctx ends meanwhile, With soon returns its cause.
func (c *Config) With(ctx context.Context, additions []Addition) (*Config, error) {
	l := c.loader
	l.Additions, l.ctx = additions, ctx
	return l.Parse(c.File, c.source)
}

// addedLines locates the lines of an addition within document.lines.
type addedLines struct {
	file  string
	after int // the number of lines before the addition
}

// ownLines returns the number of lines of the configuration file itself, without additions.
func (d *document) ownLines() int {
	if len(d.added) == 0 {
		return len(d.lines)
	}
	return d.added[0].after
}

// text returns the text of the configuration file, followed by one empty line for each line of the
// additions: the decoder quotes lines by number when it reports errors.
func (d *document) text() []byte {
	own := d.ownLines()
	return []byte(strings.Join(d.lines[:own], "\n") + strings.Repeat("\n", len(d.lines)-own))
}

// locate maps a line of the combined document to its file and its line number in that file.
func (d *document) locate(line int) (file string, own int) {
	for i := len(d.added) - 1; i >= 0; i-- {
		if p := d.added[i]; line > p.after {
			return p.file, line - p.after
		}
	}
	return d.file, line
}

// line returns the line number of a node in its own file.
func (d *document) line(n *yaml.Node) int {
	_, line := d.locate(n.Line)
	return line
}

// describePlace describes where a node is defined. The author of an addition cannot see the
// configuration file, so for its nodes no line number is given.
func (d *document) describePlace(n *yaml.Node) string {
	file, line := d.locate(n.Line)
	switch {
	case file != d.file:
		return "line " + itoa(line) + " of " + file
	case len(d.added) > 0:
		return "the server's configuration file"
	}
	return "line " + itoa(line)
}

// add merges the agents and teams of an addition into the document.
func (d *document) add(a Addition) {
	own := parse(a.Name, a.Data)
	if own.root == nil || len(own.faults) > 0 {
		d.faults = append(d.faults, own.faults...)
		return
	}
	d.added = append(d.added, addedLines{file: a.Name, after: len(d.lines)})
	shift(own.root, len(d.lines))
	d.append(own.lines)
	d.entries(own.root, func(key, value *yaml.Node) bool {
		switch key.Value {
		case "version":
			if value.Value != "v1" && value.Value != "v2" {
				d.fault(value, "version "+quote(value.Value)+" is unknown", "write version: v1, or leave it out")
			}
		case "agents", "teams":
			d.addTo(key, value)
		default:
			d.fault(key, quote(key.Value)+" belongs in the server's configuration file", "a team document may define only agents and teams; it uses models and tools of the file by name")
		}
		return true
	})
}

// shift adds lines to the line numbers of n and all nodes below it.
func shift(n *yaml.Node, lines int) {
	n.Line += lines
	for _, c := range n.Content {
		shift(c, lines)
	}
}

// addTo adds the entries of a section to the document's section of the same name.
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
			d.fault(id, quote(id.Value)+" already exists", "choose another id; this one is defined in "+d.describePlace(known))
			continue
		}
		d.rejectVariables(entry)
		section.Content = append(section.Content, id, entry)
	}
}

// defined returns the key node of an agent or team, or nil if the id is not defined.
func (d *document) defined(id string) *yaml.Node {
	if key := d.keyOf("agents", id); key != nil {
		return key
	}
	return d.keyOf("teams", id)
}

// keyOf returns the key node of an entry in a section, or nil if there is no such entry.
func (d *document) keyOf(section, id string) *yaml.Node {
	_, entries := child(d.root, section)
	if entries == nil {
		return nil
	}
	key, _ := child(entries, id)
	return key
}

// rejectVariables reports references to environment variables and files of the server.
func (d *document) rejectVariables(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "${") {
		d.fault(n, "environment variables and files of the server cannot be used here", "write the value itself; secrets belong in the server's configuration file")
		n.Value = strings.ReplaceAll(n.Value, "${", "")
	}
	for _, c := range n.Content {
		d.rejectVariables(c)
	}
}

// rejectServerOnly reports the keys of added agents and teams that only the configuration file may
// set: names of files, and secrets. It removes the file names so that later checks do not open
// them.
func (d *document) rejectServerOnly(c *teamv1.ServerConfig) {
	const file, secret = "names a file, which is only allowed in the server's configuration file", "holds a secret, which is only allowed in the server's configuration file"
	for _, id := range d.addedTo("agents") {
		a := c.GetAgents()[id]
		refuse := func(set bool, why string, path ...any) bool {
			if set {
				d.fault(d.keyAt(append([]any{"agents", id}, path...)...), quote(fmt.Sprint(path[len(path)-1]))+" "+why, "define the agent in the server's configuration file")
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
		if t := a.GetGrpc().GetTls(); refuse(t.GetCert() != "", file, "grpc", "tls", "cert") || refuse(t.GetKey() != "", file, "grpc", "tls", "key") {
			t.Cert, t.Key = "", ""
		}
		refuse(len(a.GetSettings().GetHeaders()) > 0, secret, "settings", "headers")
		refuse(a.GetA2A().GetAuth() != nil, secret, "a2a", "auth")
		refuse(a.GetGrpc().GetAuth() != nil, secret, "grpc", "auth")
	}
	for _, id := range d.addedTo("teams") {
		t := c.GetTeams()[id]
		if len(schemasOf(t.GetGuardrails(), "")) > 0 {
			d.fault(d.keyAt("teams", id, "guardrails"), quote("guardrails")+" "+file, "define the team in the server's configuration file")
			t.Guardrails = nil
		}
		for _, r := range reviews(id, t) {
			if r.GetJudge().GetSchema() != "" {
				d.fault(d.keyAt(append(r.path, "judge", "schema")...), quote("schema")+" "+file, "define the team in the server's configuration file")
				r.Judge.Schema, r.Threshold = "", proto.Float64(1) // no further fault
			}
		}
	}
}

// Addition returns the name of the addition that defines an agent or team, or "" if the
// configuration file defines it.
func (c *Config) Addition(id string) string { return c.additions[id] }

// AccountOf returns the account that has made an agent or team by the API, "" if it is of the configuration
// file.
func (c *Config) AccountOf(id string) string { return c.accounts[id] }

// Added returns the ids of the agents and teams that the named addition defines, sorted.
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

// Beside returns a configuration that serves everything c serves, and also, for each name in
// others, the agents and teams that the other configuration has from the addition of that name. All
// configurations must come from the same file.
func (c *Config) Beside(others map[string]*Config) *Config {
	all := *c
	all.Server = &teamv1.ServerConfig{
		Version: c.Server.GetVersion(), Models: c.Server.GetModels(), Tools: c.Server.GetTools(), Server: c.Server.GetServer(),
		Agents: maps.Clone(c.Server.GetAgents()), Teams: maps.Clone(c.Server.GetTeams()),
	}
	all.Used, all.additions, all.accounts = maps.Clone(c.Used), map[string]string{}, map[string]string{}
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
			all.additions[id], all.accounts[id], all.Used[id] = with, other.accounts[id], true
			if a := other.Server.GetAgents()[id]; a != nil {
				all.Server.Agents[id] = a
			} else {
				all.Server.Teams[id] = other.Server.GetTeams()[id]
			}
		}
	}
	return &all
}

// origins returns the name of the addition by the id of each added agent and team.
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

// addedTo returns the ids of the entries of a section that additions define.
func (d *document) addedTo(section string) (ids []string) {
	_, entries := child(d.root, section)
	if entries == nil || entries.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(entries.Content); i += 2 {
		if key := entries.Content[i]; key.Line > d.ownLines() {
			ids = append(ids, key.Value)
		}
	}
	return ids
}

// Text returns the text of the addition for quoting in faults.
func (a Addition) Text() *Text { return parse(a.Name, a.Data).Text }

// Outline lists what an addition defines, without checking it.
type Outline struct {
	// Agents and Teams are the ids that the addition defines, in the order of the document.
	Agents, Teams []string
	// Words holds every key and every scalar value, and thus every name that the addition refers
	// to.
	Words map[string]bool

	root *yaml.Node
}

// Outline parses the addition. The error is of type Faults.
func (a Addition) Outline() (*Outline, error) {
	d := parse(a.Name, a.Data)
	if d.root == nil || len(d.faults) > 0 {
		return nil, d.result()
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

// read adds the scalars of n and of all nodes below it to Words.
func (o *Outline) read(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		o.Words[n.Value] = true
	}
	for _, c := range n.Content {
		o.read(c)
	}
}

// Path returns the keys and indexes that lead to the value at a line and column, both counted from
// 1. If there is no value at that place, the path ends at the deepest value around or before it.
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
