package config

import (
	"context"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// document is a parsed file with the faults found so far.
type document struct {
	*Text  // the lines of the file, followed by those of the additions
	file   string
	added  []addedLines
	root   *yaml.Node
	faults Faults
	more   int // the number of faults that are not in faults; see maxFaults
	// damaged holds nodes that already have a fault. Later checks report nothing about them,
	// because what they find is likely to be a consequence of that fault.
	damaged map[*yaml.Node]bool
	keys    map[*yaml.Node]keyed // what entry has read of mappings with many keys
	ctx     context.Context      //nolint:containedctx // of Loader.Parse; nil has no end
}

// ended reports whether the context of the checks has ended. Loops over the document's parts stop then, and their
// results are discarded.
func (d *document) ended() bool { return d.ctx != nil && d.ctx.Err() != nil }

// keyed are the values of a mapping by key.
type keyed struct {
	length int // of the node's content when it was read
	values map[string]*yaml.Node
}

// manyKeys is the length of a mapping's content from which on its keys are not compared one by one.
const manyKeys = 32

// fault adds a fault at a node; nil means the file as a whole.
func (d *document) fault(n *yaml.Node, message, hint string) {
	if n == nil {
		d.faultAt(0, 0, message, hint)
		return
	}
	d.faultAt(n.Line, n.Column, message, hint)
}

// maxFaults is the number of faults of a document that are reported. To show the source of a fault takes a time that
// grows with the length of its line.
const maxFaults = 200

// result returns the faults that were found, at most maxFaults and one that counts the others.
func (d *document) result() Faults {
	all := tidy(d.faults)
	if d.more > 0 {
		all = append(all, Fault{File: d.file, Message: fmt.Sprintf("%d more faults are not listed", d.more), Hint: "mend those that are, and check again"})
	}
	return all
}

// faultAt adds a fault at a line and column of the combined document, counted from 1.
func (d *document) faultAt(line, col int, message, hint string) {
	if len(d.faults) >= maxFaults {
		d.more++
		return
	}
	file, own := d.locate(line)
	f := d.Fault(file, line, col, message, hint)
	f.Line = own
	d.faults = append(d.faults, f)
}

// hasFault reports whether a fault was already added for a node.
func (d *document) hasFault(n *yaml.Node) bool {
	file, own := d.locate(n.Line)
	return slices.ContainsFunc(d.faults, func(f Fault) bool { return f.File == file && f.Line == own && f.Col == n.Column })
}

// damage marks nodes as damaged.
func (d *document) damage(nodes ...*yaml.Node) {
	for _, n := range nodes {
		d.damaged[n] = true
	}
}

// at returns the value at path, which consists of keys and list indexes. If there is no such value,
// it returns the deepest existing value above it, and found is false.
func (d *document) at(path ...any) (n *yaml.Node, found bool) {
	n = d.root
	for _, step := range path {
		value := d.entry(n, step)
		if value == nil {
			return n, false
		}
		n = value
	}
	return n, true
}

// entry returns an entry of a mapping or a sequence, like child.
func (d *document) entry(n *yaml.Node, step any) *yaml.Node {
	name, ok := step.(string)
	if !ok || n.Kind != yaml.MappingNode || len(n.Content) < manyKeys {
		_, value := child(n, step)
		return value
	}
	known := d.keys[n]
	if known.length != len(n.Content) {
		known = keyed{len(n.Content), make(map[string]*yaml.Node, len(n.Content)/2)}
		for i := len(n.Content) - 2; i >= 0; i -= 2 { // the first of a name counts
			known.values[n.Content[i].Value] = n.Content[i+1]
		}
		if d.keys == nil {
			d.keys = map[*yaml.Node]keyed{}
		}
		d.keys[n] = known
	}
	return known.values[name]
}

// keyAt is like at but returns the node of the last key instead of its value.
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

// isDamaged reports whether the value at path is damaged, or is missing and the value above it is
// damaged.
func (d *document) isDamaged(path ...any) bool {
	n, _ := d.at(path...)
	return d.damaged[n]
}

// child returns an entry of a mapping by key, or of a sequence by index. It returns nil if there is
// no such entry.
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
