package source

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// fileSuffix follows the name of a key whose text stands in a file.
const fileSuffix = "_file"

// writeOut replaces the short forms of a mapping's keys, which the options of its message declare: further names of a
// key, texts that stand in files, and the keys of a message that stand beside the key of that message.
func writeOut(d *Document, n *yaml.Node, m protoreflect.MessageDescriptor) {
	for key := range Pairs(n) {
		if f := alsoNamed(m, key.Value); f != nil {
			key.Value = f.TextName()
		}
	}
	writeInline(n, m)
	for key, value := range Pairs(n) {
		if f := ofFile(m, key.Value); f != nil {
			key.Value = f.TextName()
			textOfFile(d, value)
		}
	}
}

// alsoNamed returns the field that has a further name.
func alsoNamed(m protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if slices.Contains(option[[]string](f.Options(), teamv1.E_Also), strings.ToLower(name)) {
			return f
		}
	}
	return nil
}

// ofFile returns the field whose text stands in the file that a key names.
func ofFile(m protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	own, found := strings.CutSuffix(name, fileSuffix)
	f := m.Fields().ByTextName(own)
	if !found || f == nil || !option[bool](f.Options(), teamv1.E_FromFile) {
		return nil
	}
	return f
}

// textOfFile replaces the name of a file by a reference to its text.
func textOfFile(d *Document, name *yaml.Node) {
	switch {
	case name.Kind != yaml.ScalarNode || name.Tag == "!!null":
	case d.Origin(name) != "":
		d.NodeFault(name, "files of the server cannot be used here", "write the text itself")
		name.Value = ""
	case strings.ContainsAny(name.Value, "${}"):
		d.NodeFault(name, "the name of a file cannot contain $, { or }", "write the name itself; it is relative to this file")
		name.Value = ""
	default:
		name.Value = "${file:" + name.Value + "}"
	}
}

// writeInline moves keys that stand beside the key of the message they belong to into that message.
func writeInline(n *yaml.Node, m protoreflect.MessageDescriptor) {
	f := inlined(m)
	if f == nil || n.Kind != yaml.MappingNode {
		return
	}
	var own, moved []*yaml.Node
	for key, value := range Pairs(n) {
		if m.Fields().ByTextName(key.Value) == nil && (f.Message().Fields().ByTextName(key.Value) != nil || ofFile(f.Message(), key.Value) != nil) {
			moved = append(moved, key, value)
		} else {
			own = append(own, key, value)
		}
	}
	if len(moved) == 0 {
		return
	}
	inner := Value(n, f.TextName())
	if inner == nil {
		inner = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: moved[0].Line, Column: moved[0].Column}
		own = append(own, textNode(moved[0], f.TextName()), inner)
	}
	writeText(inner, f)
	inner.Content = append(inner.Content, moved...)
	n.Content = own
}

// inlined returns the field of a message whose keys may stand beside it.
func inlined(m protoreflect.MessageDescriptor) protoreflect.FieldDescriptor {
	for i := range m.Fields().Len() {
		if f := m.Fields().Get(i); option[bool](f.Options(), teamv1.E_Inline) {
			return f
		}
	}
	return nil
}

// writeText replaces a text in the place of a message by the message with the key that the text sets.
func writeText(value *yaml.Node, f protoreflect.FieldDescriptor) {
	if f.Message() == nil || value.Kind != yaml.ScalarNode || value.Tag != "!!str" {
		return
	}
	if key := textSets(f); key != "" {
		text := *value
		*value = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: text.Line, Column: text.Column, Content: []*yaml.Node{textNode(&text, key), &text}}
	}
}

// textSets returns the key that a text sets in place of a value of a field, or "".
func textSets(f protoreflect.FieldDescriptor) string {
	if entry := f.ContainingMessage(); entry.IsMapEntry() { // the map itself is a field of the message around it
		outer, _ := entry.Parent().(protoreflect.MessageDescriptor)
		for i := range outer.Fields().Len() {
			if m := outer.Fields().Get(i); m.IsMap() && m.Message() == entry {
				return cmp.Or(option[string](m.Options(), teamv1.E_TextValuesSet), option[string](f.Message().Options(), teamv1.E_TextSets))
			}
		}
	}
	return option[string](f.Message().Options(), teamv1.E_TextSets)
}

// textNode returns a text at the place of another node.
func textNode(at *yaml.Node, text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: at.Line, Column: at.Column}
}

// capitalize writes the words of enumerations as the definition of a message does.
func capitalize(n *yaml.Node, m protoreflect.MessageDescriptor) {
	for key, value := range Pairs(n) {
		f := m.Fields().ByTextName(key.Value)
		if f == nil {
			continue
		}
		values := []*yaml.Node{value}
		switch {
		case f.IsMap():
			f, values = f.MapValue(), nil
			for _, v := range Pairs(value) {
				values = append(values, v)
			}
		case f.IsList():
			values = value.Content
		}
		for _, v := range values {
			switch {
			case f.Enum() != nil:
				if word := strings.ToUpper(v.Value); f.Enum().Values().ByName(protoreflect.Name(word)) != nil {
					v.Value = word
				}
			case f.Message() != nil:
				capitalize(v, f.Message())
			}
		}
	}
}

// option returns the value of an option, or its zero value.
func option[V any](options protoreflect.ProtoMessage, x protoreflect.ExtensionType) V {
	v, _ := proto.GetExtension(options, x).(V)
	return v
}
