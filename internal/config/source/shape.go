package source

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Shape checks the nodes against the definition of a message and reports what the decoder would accept
// silently or describe badly: duplicate, unknown and contradictory keys, merge keys, YAML aliases,
// empty and misplaced values. It writes short forms out, and removes the nodes it reports.
func (d *Document) Shape(m proto.Message) { d.shape(d.root, m.ProtoReflect().Descriptor()) }

// shape is Shape for a mapping.
func (d *Document) shape(n *yaml.Node, m protoreflect.MessageDescriptor) {
	writeOut(d, n, m)
	known := fieldNames(m)
	chosen := map[protoreflect.FullName]string{}
	d.Filter(n, func(key, value *yaml.Node) bool {
		f := m.Fields().ByTextName(key.Value)
		if f == nil && d.glued(key, known) {
			d.damage(n)
			return false
		}
		if f == nil {
			d.NodeFault(key, "unknown key "+strconv.Quote(key.Value), hintFor(m, key.Value, known))
			d.damage(n)
			return false
		}
		return d.firstOfOneof(key, f, chosen) && d.value(n, value, f)
	})
}

// glued reports whether a text is a known key, a colon and a value without a space before the
// value, and adds a fault if it is.
func (d *Document) glued(n *yaml.Node, known []string) bool {
	key, value, found := strings.Cut(n.Value, ":")
	if !found || value == "" || n.Style != 0 || !slices.Contains(known, key) {
		return false
	}
	d.NodeFault(n, "a space is missing after the colon of "+strconv.Quote(key), "write "+key+": and a space before the value")
	return true
}

// gluedKey is like glued for a text where the keys of a message are expected.
func (d *Document) gluedKey(value *yaml.Node, f protoreflect.FieldDescriptor) bool {
	return value.Kind == yaml.ScalarNode && f.Message() != nil && d.glued(value, fieldNames(f.Message()))
}

// firstOfOneof reports whether a key is the first of a oneof, such as the kinds of a scripted step,
// and adds a fault if it is not.
func (d *Document) firstOfOneof(key *yaml.Node, f protoreflect.FieldDescriptor, chosen map[protoreflect.FullName]string) bool {
	o := f.ContainingOneof()
	if o == nil || o.IsSynthetic() {
		return true
	}
	if first, ok := chosen[o.FullName()]; ok {
		d.NodeFault(key, strconv.Quote(key.Value)+" cannot be combined with "+strconv.Quote(first), "keep one of them, or make two steps")
		return false
	}
	chosen[o.FullName()] = key.Value
	return true
}

// Filter calls keep for each entry of a mapping and removes the entries for which it returns
// false.
func (d *Document) Filter(n *yaml.Node, keep func(key, value *yaml.Node) bool) {
	seen := map[string]*yaml.Node{}
	var kept []*yaml.Node
	for i := 0; i+1 < len(n.Content) && !d.Ended(); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		first := seen[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.NodeFault(key, "a key must be text, got "+KindOf(key), "put a word before the colon")
		case key.Tag == "!!merge":
			d.NodeFault(key, "merge keys (<<) are not supported", "repeat the keys, or give the shared part a name of its own")
			d.damage(n)
		case first != nil:
			d.NodeFault(key, "key "+strconv.Quote(key.Value)+" is set twice", "the first one is in line "+strconv.Itoa(d.ownLine(first))+"; remove one of them")
		default:
			seen[key.Value] = key
			if keep(key, value) {
				kept = append(kept, key, value)
			}
		}
	}
	n.Content = kept
}

// value checks the value of a key and reports whether it can be decoded.
func (d *Document) value(parent, value *yaml.Node, f protoreflect.FieldDescriptor) bool {
	if !f.IsMap() && d.gluedKey(value, f) {
		d.damage(parent, value)
		return false
	}
	if !f.IsMap() && !f.IsList() {
		writeText(value, f)
	}
	if !d.fits(value, f) {
		d.damage(parent, value)
		return false
	}
	switch {
	case f.IsMap():
		d.Filter(value, func(_, v *yaml.Node) bool { return d.item(value, v, f.MapValue()) })
	case f.IsList():
		for _, item := range slices.Clone(value.Content) {
			if !d.item(value, item, f) {
				value.Content = slices.DeleteFunc(value.Content, func(n *yaml.Node) bool { return n == item })
			}
		}
	default:
		inside(d, value, f)
	}
	return true
}

// item checks an entry of a list or map.
func (d *Document) item(parent, value *yaml.Node, f protoreflect.FieldDescriptor) bool {
	if d.gluedKey(value, f) {
		d.damage(parent, value)
		return false
	}
	writeText(value, f)
	if !d.kind(value, single(f), formOf(value, f, true)) {
		d.damage(parent, value)
		return false
	}
	inside(d, value, f)
	return true
}

// inside checks what a value has below it.
func inside(d *Document, value *yaml.Node, f protoreflect.FieldDescriptor) {
	if value.Kind == yaml.MappingNode && f.Message() != nil && f.Message().FullName() != "google.protobuf.Struct" {
		d.shape(value, f.Message())
	}
}

// fits reports whether a value has the node kind that its field requires.
func (d *Document) fits(value *yaml.Node, f protoreflect.FieldDescriptor) bool {
	want := single(f)
	switch {
	case f.IsMap():
		want = yaml.MappingNode
	case f.IsList() && value.Kind == yaml.ScalarNode && value.Tag != "!!null" && f.Message() == nil && value.Value != "":
		d.NodeFault(value, "expected a list, got "+KindOf(value), asList(value, f))
		return false
	case f.IsList():
		want = yaml.SequenceNode
	}
	return d.kind(value, want, formOf(value, f, false))
}

// kind reports whether a value has the node kind that is wanted. form says how to write it, if it is known.
func (d *Document) kind(value *yaml.Node, want yaml.Kind, form string) bool {
	switch {
	case value.Kind == yaml.AliasNode:
		d.NodeFault(value, "aliases are not supported", "write the value out")
	case value.Tag == "!!null":
		d.NodeFault(value, "the value is missing", "add a value, or remove the key")
	case want == yaml.ScalarNode && isBraces(value):
		d.NodeFault(value, "a value that begins with {{ must be in quotes", `put the value in quotes: "{{...}}"`)
	case value.Kind != want:
		what, hint := wanted(want)
		d.NodeFault(value, "expected "+what+", got "+KindOf(value), cmp.Or(form, hint))
	default:
		return true
	}
	return false
}

// isBraces reports whether a value is written as {{...}}, which YAML reads as a mapping
// within a mapping.
func isBraces(n *yaml.Node) bool {
	return n.Kind == yaml.MappingNode && len(n.Content) > 0 && n.Content[0].Kind == yaml.MappingNode
}

// single returns the node kind of a single value of a field.
func single(f protoreflect.FieldDescriptor) yaml.Kind {
	if f.Message() != nil && f.Message().FullName() != "google.protobuf.Duration" {
		return yaml.MappingNode
	}
	return yaml.ScalarNode
}

// wanted describes a node kind and how it is written.
func wanted(k yaml.Kind) (what, hint string) {
	switch k {
	case yaml.MappingNode:
		return "keys and values", "write {key: value}, or the keys indented below"
	case yaml.SequenceNode:
		return "a list", "write [one, two], or - one, - two on lines of their own"
	default:
		return "a single value", "write it after the key"
	}
}

// fieldNames returns the keys of a message.
func fieldNames(m protoreflect.MessageDescriptor) []string {
	var names []string
	for i := range m.Fields().Len() {
		names = append(names, m.Fields().Get(i).TextName())
	}
	if f := inlined(m); f != nil {
		names = append(names, fieldNames(f.Message())...)
	}
	return names
}
