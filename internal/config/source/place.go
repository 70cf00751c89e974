package source

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Place is a value of a document, or where it would be. Nothing is looked up before a method is called.
type Place struct {
	d    *Document
	path []any
}

// At returns the place of the value at path, which consists of keys and list indexes.
func (d *Document) At(path ...any) Place { return Place{d, path} }

// At returns the place of a value below p.
func (p Place) At(steps ...any) Place { return Place{p.d, slices.Concat(p.path, steps)} }

// Field returns the place of a value below p whose path is written like rules[2].next[0]; "" is p itself.
func (p Place) Field(path string) Place {
	var steps []any
	for _, part := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		if i, err := strconv.Atoi(part); err == nil {
			steps = append(steps, i)
		} else {
			steps = append(steps, part)
		}
	}
	return p.At(steps...)
}

// Above returns the place of the nth part of the path, counted from the root.
func (p Place) Above(n int) Place { return Place{p.d, p.path[:min(n, len(p.path))]} }

// Path returns the keys and indexes that lead to the place.
func (p Place) Path() []any { return p.path }

// Document returns the document of the place.
func (p Place) Document() *Document { return p.d }

// Node returns the value, or the deepest existing value above it.
func (p Place) Node() *yaml.Node { return p.d.Node(p.path...) }

// Found reports whether there is a value.
func (p Place) Found() bool { return p.d.Has(p.path...) }

// Damaged reports whether the value, or if it is missing the one above it, has a fault so that others are likely to be
// consequences of that.
func (p Place) Damaged() bool { return p.d.damaged[p.Node()] }

// Faulty reports whether a fault was already added for the value.
func (p Place) Faulty() bool { return p.d.hasFault(p.Node()) }

// EntryFaulty reports whether a list entry on the path has a fault as a whole. Contradictions between
// its parts are then consequences of that fault.
func (p Place) EntryFaulty() bool {
	for i, step := range p.path {
		if _, item := step.(int); !item {
			continue
		}
		if n, found := p.d.Find(p.path[:i+1]...); found && n.Kind == yaml.MappingNode && p.d.hasFault(n) {
			return true
		}
	}
	return false
}

// Line returns the line of the value in its own file.
func (p Place) Line() int { return p.d.ownLine(p.Node()) }

// File returns the file that has the value.
func (p Place) File() string {
	file, _ := p.d.locate(p.Node().Line)
	return file
}

// Describe describes where the key is defined, for a message. The author of a document that was appended cannot see the
// file, so for what the file has no line number is given.
func (p Place) Describe() string {
	file, line := p.d.locate(p.d.Key(p.path...).Line)
	switch {
	case file != p.d.Name:
		return fmt.Sprintf("line %d of %s", line, file)
	case len(p.d.added) > 0:
		return "the server's configuration file"
	}
	return fmt.Sprintf("line %d", line)
}

// Fault adds a fault at the value, unless it is damaged.
func (p Place) Fault(message, hint string) {
	if n := p.Node(); !p.d.damaged[n] {
		p.d.NodeFault(n, message, hint)
	}
}

// KeyFault adds a fault at the key.
func (p Place) KeyFault(message, hint string) { p.d.NodeFault(p.d.Key(p.path...), message, hint) }

// Report adds a fault at the value of a field below the place, and ReportKey at its key, unless it is damaged. They are for
// checks that know paths within what they check, and nothing of files.
func (p Place) Report(field, message, hint string) { p.Field(field).Fault(message, hint) }

// ReportKey is like Report for the key.
func (p Place) ReportKey(field, message, hint string) {
	if at := p.Field(field); !at.Damaged() {
		at.KeyFault(message, hint)
	}
}

// FaultEmpty reports keys without a value in a part of the file in which an empty value would mean more than none. name is
// the key of the part.
func (p Place) FaultEmpty(name string) { faultEmpty(p.d, p.Node(), name) }

func faultEmpty(d *Document, n *yaml.Node, name string) {
	for key, value := range Pairs(n) {
		faultEmpty(d, value, key.Value)
	}
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			faultEmpty(d, item, name)
		}
	}
	if len(n.Content) == 0 && n.Value == "" && n.Kind != yaml.AliasNode && n.Kind != yaml.MappingNode {
		d.NodeFault(n, strconv.Quote(name)+" is empty", "give it a value, or remove the key for the default")
	}
}

// FaultInText adds a fault at a byte offset within a text value. If the file does not show the text
// literally, for example because of escapes, the fault is placed where the value begins.
func (p Place) FaultInText(offset int, message, hint string) {
	d, n := p.d, p.Node()
	before := n.Value[:min(max(offset, 0), len(n.Value))]
	line := strings.Count(before, "\n")
	first := strings.LastIndexByte(before, '\n') + 1
	text, _, _ := strings.Cut(n.Value[first:], "\n")
	at, start := n.Line+line, n.Column
	switch n.Style {
	case yaml.DoubleQuotedStyle, yaml.SingleQuotedStyle:
		start++
	case yaml.LiteralStyle, yaml.FoldedStyle:
		at++
		if at <= len(d.lines) {
			source := d.lines[at-1]
			start = len(source) - len(strings.TrimLeft(source, " ")) + 1
		}
	}
	if at > len(d.lines) || !strings.HasPrefix(suffixAt(d.lines[at-1], start), text) {
		d.NodeFault(n, message, hint)
		return
	}
	d.FaultAt(at, start+len([]rune(n.Value[first:len(before)])), message, hint)
}

// suffixAt returns the rest of a line from column col, counted in characters from 1.
func suffixAt(line string, col int) string {
	r := []rune(line)
	return string(r[min(max(col-1, 0), len(r)):])
}
