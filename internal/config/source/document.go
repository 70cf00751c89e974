// Package source reads YAML files into the messages of proto/team/v1. It reports everything that is wrong with a file at
// once, each fault with its place: syntax, keys, values, and the rules of the messages.
package source

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Document is a parsed file with the faults found so far. Other documents may have been appended to it. It is not safe for
// concurrent use.
type Document struct {
	*Text // the lines of the file, followed by those of the documents that were appended
	// Name is the path of the file as it was given.
	Name string

	data   []byte
	files  Files
	root   *yaml.Node
	added  []addedLines
	faults Faults
	more   int // the number of faults that are not in faults; see MaxFaults
	// damaged holds nodes that already have a fault. Later checks report nothing about them,
	// because what they find is likely to be a consequence of that fault.
	damaged  map[*yaml.Node]bool
	keys     map[*yaml.Node]keyed // what entry has read of mappings with many keys
	ctx      context.Context      //nolint:containedctx // of SetContext; nil has no end
	searches int                  // for names that are meant; see MaxSearches
}

// keyed are the values of a mapping by key.
type keyed struct {
	length int // of the node's content when it was read
	values map[string]*yaml.Node
}

// manyKeys is the length of a mapping's content from which on its keys are not compared one by one.
const manyKeys = 32

// MaxFaults is the number of faults of a document that are reported. To show the source of a fault takes a time that
// grows with the length of its line.
const MaxFaults = 200

// MaxSearches is the number of faults of a document for which the name that was meant is searched among the
// names that the document, and those it may refer to, define. There may be thousands of both.
const MaxSearches = 20

// SetContext sets a context whose end ends the checks. Loops over the document's parts stop then, and their results must be
// discarded.
func (d *Document) SetContext(ctx context.Context) { d.ctx = ctx }

// Ended reports whether the context of the checks has ended.
func (d *Document) Ended() bool { return d.ctx != nil && d.ctx.Err() != nil }

// Search calls f, which searches for a name, and returns the hint that it gives. After MaxSearches calls it returns "".
func (d *Document) Search(f func() string) string {
	if d.searches == MaxSearches {
		return ""
	}
	d.searches++
	return f()
}

// Data returns the content of the file. The caller must not modify it.
func (d *Document) Data() []byte { return d.data }

// Path returns the path of a file to which this one refers.
func (d *Document) Path(name string) string { return pathFrom(d.Name, name) }

// ReadFile reads a file to which this one refers. A relative name is relative to this file.
func (d *Document) ReadFile(name string) ([]byte, error) { return d.files.Read(d.Path(name)) }

// Root returns the root of the document, a mapping. It returns nil if the file could not be parsed, and then there are faults.
func (d *Document) Root() *yaml.Node { return d.root }

// Find returns the value at path, which consists of keys and list indexes. If there is no such value,
// it returns the deepest existing value above it, and found is false.
func (d *Document) Find(path ...any) (n *yaml.Node, found bool) {
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

// Has reports whether there is a value at path, which consists of keys and indexes.
func (d *Document) Has(path ...any) bool {
	_, found := d.Find(path...)
	return found
}

// Node returns the value at path, or the deepest existing value above it.
func (d *Document) Node(path ...any) *yaml.Node {
	n, _ := d.Find(path...)
	return n
}

// Key is like Node but returns the node of the last key instead of its value.
func (d *Document) Key(path ...any) *yaml.Node {
	parent, found := d.Find(path[:len(path)-1]...)
	if !found {
		return parent
	}
	key, _ := child(parent, path[len(path)-1])
	if key == nil {
		return parent
	}
	return key
}

// Line returns the line of the key or list entry at path, or of the deepest one above it.
func (d *Document) Line(path ...any) int {
	if len(path) == 0 {
		return d.root.Line
	}
	return d.Key(path...).Line
}

// entry returns an entry of a mapping or a sequence, like child.
func (d *Document) entry(n *yaml.Node, step any) *yaml.Node {
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

// Value returns the value of a key of a mapping, or nil if the mapping does not have the key.
func Value(n *yaml.Node, key string) *yaml.Node {
	if n == nil {
		return nil
	}
	_, value := child(n, key)
	return value
}

// Pairs returns the keys of a mapping and their values, in order. A node of another kind has none.
func Pairs(n *yaml.Node) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}

// child returns an entry of a mapping by key, or of a sequence by index. It returns nil if there is
// no such entry.
func child(n *yaml.Node, step any) (key, value *yaml.Node) {
	switch s := step.(type) {
	case string:
		for key, value := range Pairs(n) {
			if key.Value == s {
				return key, value
			}
		}
	case int:
		if n.Kind == yaml.SequenceNode && s < len(n.Content) {
			return n.Content[s], n.Content[s]
		}
	}
	return nil, nil
}

// NodeFault adds a fault at a node.
func (d *Document) NodeFault(n *yaml.Node, message, hint string) {
	d.FaultAt(n.Line, n.Column, message, hint)
}

// FaultAt adds a fault at a line and column of the combined document, counted from 1.
func (d *Document) FaultAt(line, col int, message, hint string) {
	if len(d.faults) >= MaxFaults {
		d.more++
		return
	}
	file, own := d.locate(line)
	f := d.Text.Fault(file, line, col, message, hint)
	f.Line = own
	d.faults = append(d.faults, f)
}

// Fault adds a fault at the value at path, like Place.Fault.
func (d *Document) Fault(message, hint string, path ...any) { d.At(path...).Fault(message, hint) }

// KeyFault adds a fault at the last key of path.
func (d *Document) KeyFault(message, hint string, path ...any) { d.At(path...).KeyFault(message, hint) }

// AddFaults adds faults of another file.
func (d *Document) AddFaults(fs ...Fault) { d.faults = append(d.faults, fs...) }

// Faults returns the faults that were found, sorted: at most MaxFaults and one that counts the others. It returns nil
// for a document without faults.
func (d *Document) Faults() Faults {
	if len(d.faults) == 0 {
		return nil
	}
	all := Tidy(d.faults)
	if d.more > 0 {
		all = append(all, Fault{File: d.Name, Message: fmt.Sprintf("%d more faults are not listed", d.more), Hint: "mend those that are, and check again"})
	}
	return all
}

// hasFault reports whether a fault was already added for a node.
func (d *Document) hasFault(n *yaml.Node) bool {
	file, own := d.locate(n.Line)
	return slices.ContainsFunc(d.faults, func(f Fault) bool { return f.File == file && f.Line == own && f.Col == n.Column })
}

// damage marks nodes as damaged.
func (d *Document) damage(nodes ...*yaml.Node) {
	for _, n := range nodes {
		d.damaged[n] = true
	}
}

// addedLines locates the lines of an appended document within Document.lines.
type addedLines struct {
	file  string
	after int // the number of lines before it
}

// Append parses another document, which is to become a part of this one, and returns its root. If it has faults, Append adds
// them to those of this document and returns nil.
func (d *Document) Append(name string, data []byte) *yaml.Node {
	own := Parse(name, data)
	if len(own.faults) > 0 {
		d.AddFaults(own.faults...)
		return nil
	}
	d.added = append(d.added, addedLines{file: name, after: len(d.lines)})
	shift(own.root, len(d.lines))
	d.append(own.lines)
	return own.root
}

// shift adds lines to the line numbers of n and all nodes below it.
func shift(n *yaml.Node, lines int) {
	n.Line += lines
	for _, c := range n.Content {
		shift(c, lines)
	}
}

// text returns the text of the file, followed by one empty line for each line of the documents that were appended: the
// decoder quotes lines by number when it reports errors.
func (d *Document) text() []byte {
	own := len(d.lines)
	if len(d.added) > 0 {
		own = d.added[0].after
	}
	return []byte(strings.Join(d.lines[:own], "\n") + strings.Repeat("\n", len(d.lines)-own))
}

// locate maps a line of the combined document to its file and its line number in that file.
func (d *Document) locate(line int) (file string, own int) {
	for i := len(d.added) - 1; i >= 0; i-- {
		if p := d.added[i]; line > p.after {
			return p.file, line - p.after
		}
	}
	return d.Name, line
}

// ownLine returns the line of a node in its own file.
func (d *Document) ownLine(n *yaml.Node) int {
	_, line := d.locate(n.Line)
	return line
}

// Origin returns the name of the appended document that has a node, "" for the file itself.
func (d *Document) Origin(n *yaml.Node) string {
	if file, _ := d.locate(n.Line); file != d.Name {
		return file
	}
	return ""
}
