package config

import (
	"go.yaml.in/yaml/v3"
)

// document is a file as its nodes, with what was found wrong so far.
type document struct {
	*Text  // of the file, and behind it those of the additions
	file   string
	added  []part
	root   *yaml.Node
	faults Faults
	// damaged nodes have a fault of their own: what a later check finds there
	// follows from it and is not reported.
	damaged map[*yaml.Node]bool
}

// fault reports at a node.
func (d *document) fault(n *yaml.Node, message, hint string) {
	if n == nil {
		d.faultAt(0, 0, message, hint)
		return
	}
	d.faultAt(n.Line, n.Column, message, hint)
}

func (d *document) faultAt(line, col int, message, hint string) {
	file, own := d.locate(line)
	f := d.Fault(file, line, col, message, hint)
	f.Line = own
	d.faults = append(d.faults, f)
}

// damage marks nodes whose later faults are not reported.
func (d *document) damage(nodes ...*yaml.Node) {
	for _, n := range nodes {
		d.damaged[n] = true
	}
}

// at returns the value below path: names of keys and indexes of lists. What is
// not there is represented by the deepest node above it; found tells.
func (d *document) at(path ...any) (n *yaml.Node, found bool) {
	n = d.root
	for _, step := range path {
		_, value := child(n, step)
		if value == nil {
			return n, false
		}
		n = value
	}
	return n, true
}

// keyAt is at for the key itself.
func (d *document) keyAt(path ...any) *yaml.Node {
	parent, found := d.at(path[:len(path)-1]...)
	if !found {
		return parent
	}
	key, _ := child(parent, path[len(path)-1])
	if key == nil {
		return parent
	}
	return key
}

// hurt reports whether the value below path is damaged, or missing where
// something else is damaged in its place.
func (d *document) hurt(path ...any) bool {
	n, _ := d.at(path...)
	return d.damaged[n]
}

// child returns an entry of a mapping by its key, or of a sequence by its index.
func child(n *yaml.Node, step any) (key, value *yaml.Node) {
	switch s := step.(type) {
	case string:
		if n.Kind != yaml.MappingNode {
			return nil, nil
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == s {
				return n.Content[i], n.Content[i+1]
			}
		}
	case int:
		if n.Kind == yaml.SequenceNode && s < len(n.Content) {
			return n.Content[s], n.Content[s]
		}
	}
	return nil, nil
}
