package config

import (
	"bytes"
	"errors"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Split divides a document into one document for each of its teams. Each holds the team and the
// agents it works with, unless an earlier document holds them. A team comes after the teams it
// works with. A document with a single team is returned unchanged. The error is of type Faults.
func (a Addition) Split() ([]Addition, error) {
	o, err := a.Outline()
	switch {
	case err != nil:
		return nil, err
	case len(o.Teams) == 0:
		return nil, Faults{{File: a.Name, Line: 1, Col: 1, Message: "no team is defined", Hint: "add teams:"}}
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
	for i := 0; i+1 < len(s.root.Content); i += 2 { // keep unsupported sections, so that parsing the part reports them
		if key := s.root.Content[i]; !slices.Contains([]string{"version", "agents", "teams"}, key.Value) {
			sections = append(sections, key, s.root.Content[i+1])
		}
	}
	data, err := encode(&yaml.Node{Kind: yaml.MappingNode, Content: sections})
	s.parts = append(s.parts, Addition{Name: id, Data: data})
	return err
}

func (s *splitter) value(section, id string) *yaml.Node {
	_, entries := child(s.root, section)
	_, value := child(entries, id)
	return value
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
