package config

import (
	"bytes"
	"errors"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/agentteams/team-server/internal/config/source"
)

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
	d := source.Parse(a.Name, a.Data)
	if fs := d.Faults(); fs != nil {
		return nil, fs
	}
	ids := func(section string) (list []string) {
		for key := range source.Pairs(source.Value(d.Root(), section)) {
			list = append(list, key.Value)
		}
		return list
	}
	o := &Outline{Agents: ids("agents"), Teams: ids("teams"), Words: map[string]bool{}, root: d.Root()}
	o.read(d.Root())
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

// Split divides a document into one document for each of its teams. Each holds the team and the
// agents it works with, unless an earlier document holds them. A team comes after the teams it
// works with. A document with a single team is returned unchanged. The error is of type Faults.
func (a Addition) Split() ([]Addition, error) {
	o, err := a.Outline()
	switch {
	case err != nil:
		return nil, err
	case len(o.Teams) == 0:
		return nil, source.Faults{{File: a.Name, Line: 1, Col: 1, Message: "no team is defined", Hint: "add teams:"}}
	case len(o.Teams) == 1:
		return []Addition{{Name: o.Teams[0], Data: a.Data}}, nil
	}
	s := &splitter{Outline: o, taken: map[string]bool{}}
	for _, id := range o.Teams {
		if err := s.team(id); err != nil {
			return nil, err
		}
	}
	return s.parts, nil
}

// splitter builds the documents for Split.
type splitter struct {
	*Outline
	taken map[string]bool // ids that a document already holds
	parts []Addition
}

// team adds the document of a team, after those of the teams it refers to.
func (s *splitter) team(id string) error {
	if s.taken[id] {
		return nil
	}
	s.taken[id] = true
	var agents, sections []*yaml.Node
	for todo := []*yaml.Node{s.value("teams", id)}; len(todo) > 0; todo = todo[1:] {
		words := &Outline{Words: map[string]bool{}}
		words.read(todo[0])
		for _, other := range s.Teams {
			if words.Words[other] {
				if err := s.team(other); err != nil {
					return err
				}
			}
		}
		for _, one := range s.Agents {
			if words.Words[one] && !s.taken[one] {
				s.taken[one] = true
				value := s.value("agents", one)
				agents, todo = append(agents, scalar(one), value), append(todo, value)
			}
		}
	}
	entries := func(section string, content ...*yaml.Node) {
		sections = append(sections, scalar(section), &yaml.Node{Kind: yaml.MappingNode, Content: content})
	}
	if len(agents) > 0 {
		entries("agents", agents...)
	}
	entries("teams", scalar(id), s.value("teams", id))
	for key, value := range source.Pairs(s.root) { // keep unsupported sections, so that parsing the part reports them
		if !slices.Contains([]string{"version", "agents", "teams"}, key.Value) {
			sections = append(sections, key, value)
		}
	}
	data, err := encode(&yaml.Node{Kind: yaml.MappingNode, Content: sections})
	s.parts = append(s.parts, Addition{Name: id, Data: data})
	return err
}

func (s *splitter) value(section, id string) *yaml.Node {
	return source.Value(source.Value(s.root, section), id)
}

func scalar(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

// encode encodes nodes as a YAML document.
func encode(root *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := errors.Join(enc.Encode(root), enc.Close())
	return b.Bytes(), err
}
