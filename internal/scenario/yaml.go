package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// mapping returns a mapping of keys and values, which alternate. Values that are nil, and their keys, are left out.
func mapping(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for pair := range slices.Chunk(pairs, 2) {
		if value := node(pair[1]); value != nil {
			n.Content = append(n.Content, node(pair[0]), value)
		}
	}
	return n
}

// node returns the node of a value: nil for nil and for lists and mappings without content, else a node.
func node(v any) *yaml.Node {
	switch v := v.(type) {
	case *yaml.Node:
		return v
	case []*yaml.Node:
		if len(v) > 0 {
			return &yaml.Node{Kind: yaml.SequenceNode, Content: v}
		}
	case []string:
		var items []*yaml.Node
		for _, s := range v {
			items = append(items, node(s))
		}
		list := node(items)
		if list != nil {
			list.Style = yaml.FlowStyle
		}
		return list
	case map[string]*yaml.Node:
		var pairs []any
		for _, key := range sorted(v) {
			pairs = append(pairs, key, v[key])
		}
		if len(pairs) > 0 {
			return mapping(pairs...)
		}
	case string:
		n := &yaml.Node{}
		n.SetString(v) // a block for several lines
		if strings.HasPrefix(strings.TrimLeft(v, "\n "), "\t") {
			n.Style = yaml.DoubleQuotedStyle // a block that begins with a tab cannot be read again
		}
		return n
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}
	case int64:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(v, 10)}
	}
	return nil
}

// flow returns a mapping on one line.
func flow(pairs ...any) *yaml.Node {
	n := mapping(pairs...)
	n.Style = yaml.FlowStyle
	return n
}

// object returns a JSON object as a node, or nil if it is none or if YAML would read it in another way.
func object(text string) *yaml.Node {
	var fields map[string]any
	if json.Unmarshal([]byte(text), &fields) != nil || fields == nil {
		return nil
	}
	var doc yaml.Node
	var again map[string]any
	if yaml.Unmarshal([]byte(text), &doc) != nil || doc.Decode(&again) != nil || len(doc.Content) != 1 {
		return nil
	}
	before, err := json.Marshal(fields)
	after, err2 := json.Marshal(again)
	if err != nil || err2 != nil || !bytes.Equal(before, after) {
		return nil
	}
	return doc.Content[0]
}

// part returns a message of A2A in JSON as a node.
func part(m proto.Message) (*yaml.Node, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("a part of a message: %w", err)
	}
	n := object(string(text))
	if n == nil {
		return nil, fmt.Errorf("a part of a message cannot be written as YAML: %s", quoted(string(text)))
	}
	return n, nil
}

// document returns a file with a comment at its head.
func document(comment []string, root *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	for _, line := range comment {
		fmt.Fprintln(&b, strings.TrimRight("# "+line, " "))
	}
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return nil, fmt.Errorf("writing the test: %w", err)
	}
	return b.Bytes(), e.Close()
}
