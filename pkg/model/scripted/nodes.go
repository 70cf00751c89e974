package scripted

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// is reports whether a node has the given kind, and adds a fault if it does not.
func (p *parser) is(n *yaml.Node, kind yaml.Kind, what, expected string) bool {
	if n.Kind == kind {
		return true
	}
	if n.Kind == yaml.AliasNode {
		p.fault(n, "write the value out", "aliases are not supported")
		return false
	}
	p.fault(n, "", "%s must be %s, not %s", what, expected, kindOf(n))
	return false
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	return strconv.Quote(short(n.Value))
}

// short truncates a value for a message.
func short(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}

// pairs iterates over a mapping. Duplicate keys, and keys that are not text, are faults.
func (p *parser) pairs(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		lines := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			first, twice := lines[k.Value]
			switch {
			case !p.is(k, yaml.ScalarNode, "a key", "text"):
				continue
			case twice:
				p.fault(k, "remove one of them", "key %q is set twice, first in line %d", short(k.Value), first)
				continue
			case k.Value == "":
				p.fault(k, "", "a key is empty")
				continue
			}
			lines[k.Value] = k.Line
			if !yield(k.Value, v) {
				return
			}
		}
	}
}

// fields returns the values of a mapping by key, or nil if n is not a mapping. Unknown keys are
// faults.
func (p *parser) fields(n *yaml.Node, what string, known ...string) map[string]*yaml.Node {
	if !p.is(n, yaml.MappingNode, what, "keys and values") {
		return nil
	}
	f := map[string]*yaml.Node{}
	for k, v := range p.pairs(n) {
		f[k] = v
	}
	for k := range f {
		if !slices.Contains(known, k) {
			p.fault(keyOf(n, k), suggest(k, slices.Clone(known)...), "%s has no key %q", what, short(k))
			delete(f, k)
		}
	}
	return f
}

func keyOf(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i]
		}
	}
	return n
}

// text returns a scalar as text.
func (p *parser) text(n *yaml.Node, what string) string {
	if !p.is(n, yaml.ScalarNode, what, "text") {
		return ""
	}
	if n.Tag == "!!null" {
		p.fault(n, `an empty text is ""`, "%s has no value", what)
		return ""
	}
	return n.Value
}

// template returns a text with placeholders. Unknown placeholders are faults.
func (p *parser) template(n *yaml.Node, what string) string {
	s := p.text(n, what)
	if p.recorded {
		return s
	}
	if name, bad := unknownPlaceholder(s); bad {
		p.fault(n, suggest(name, append(slices.Clone(placeholders), resultOf+"TOOL")...), "%s has no placeholder {{%s}}", what, short(name))
	}
	return s
}

// number returns an integer from least to most.
func (p *parser) number(n *yaml.Node, what string, least, most int) int {
	if !p.is(n, yaml.ScalarNode, what, "a number") {
		return 0
	}
	v, err := strconv.Atoi(n.Value)
	if err != nil || n.Tag != "!!int" || v < least || v > most {
		p.fault(n, "", "%s must be a whole number from %d to %d, not %s", what, least, most, kindOf(n))
		return 0
	}
	return v
}

// truth returns true or false.
func (p *parser) truth(n *yaml.Node, what string) bool {
	if !p.is(n, yaml.ScalarNode, what, "true or false") {
		return false
	}
	if n.Tag != "!!bool" {
		p.fault(n, "", "%s must be true or false, not %s", what, kindOf(n))
	}
	return n.Value == "true"
}

func (p *parser) millis(n *yaml.Node, what string) time.Duration {
	return time.Duration(p.number(n, what, 0, int(maxDelay.Milliseconds()))) * time.Millisecond
}

// arguments returns the arguments of a call: a mapping as value, or a text as raw.
func (p *parser) arguments(n *yaml.Node) (raw string, value map[string]any) {
	switch {
	case n == nil:
		return "{}", nil
	case n.Kind == yaml.ScalarNode && n.Tag == "!!str":
		return n.Value, nil
	case p.is(n, yaml.MappingNode, "arguments", "keys and values, or a text"):
		return "", p.object(n)
	}
	return "", nil
}

func (p *parser) object(n *yaml.Node) map[string]any {
	object := map[string]any{}
	for k, v := range p.pairs(n) {
		object[k] = p.value(v)
	}
	return object
}

// value converts a node to a JSON value.
func (p *parser) value(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		return p.object(n)
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, e := range n.Content {
			list[i] = p.value(e)
		}
		return list
	case yaml.AliasNode:
		p.is(n, yaml.ScalarNode, "", "")
		return nil
	}
	switch n.Tag {
	case "!!null":
		return nil
	case "!!int", "!!float", "!!bool":
		return p.scalar(n)
	}
	return p.template(n, "a text in arguments")
}

func (p *parser) scalar(n *yaml.Node) any {
	var v any
	if err := n.Decode(&v); err != nil {
		p.fault(n, "put it in quotes", "%s is not a valid %s", kindOf(n), n.Tag[2:])
		return nil
	}
	if f, ok := v.(float64); ok && (math.IsInf(f, 0) || math.IsNaN(f)) {
		p.fault(n, "put it in quotes", "JSON has no %s", n.Value)
		return nil
	}
	if n.Tag == "!!int" && json.Valid([]byte(n.Value)) {
		return json.Number(n.Value) // keeps all digits
	}
	if _, err := json.Marshal(v); err != nil {
		p.fault(n, "put it in quotes", "%s cannot be represented in JSON", fmt.Sprint(v))
		return nil
	}
	return v
}
