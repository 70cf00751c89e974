package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// maxNodes is the maximum number of schemas that are compiled separately to locate violations.
// Below that, a violation is reported for the part as a whole.
const maxNodes = 256

// node is a separately compiled schema with the nodes for the parts of its data. The library
// reports only the first violation, in the order of map iteration; nodes find all of them in a
// fixed order.
type node struct {
	schema   *jsonschema.Resolved
	props    map[string]*node
	items    *node
	all      []*node // schemas for the same value: $ref and allOf
	required []string
	closed   bool // only the properties in props are allowed
}

// compiler compiles values to nodes.
type compiler struct {
	root *value
	left int
}

// node compiles a schema and the schemas below it. It returns nil beyond maxNodes.
func (c *compiler) node(v *value) (*node, error) {
	if c.left--; c.left < 0 {
		return nil, nil //nolint:nilnil // violations are reported for the parent
	}
	r, err := c.resolve(v)
	if err != nil || v.kind != object {
		return &node{schema: r}, err
	}
	n := &node{schema: r, props: map[string]*node{}}
	if ref := v.at["$ref"]; ref != nil {
		err = c.part(&n.all, (&checker{root: c.root}).target(ref), err)
	}
	for _, e := range entriesOf(v.at["allOf"]) {
		err = c.part(&n.all, e, err)
	}
	var items []*node
	if it := v.at["items"]; it != nil && it.kind != list && v.at["prefixItems"] == nil {
		err = c.part(&items, it, err)
	}
	if len(items) > 0 {
		n.items = items[0]
	}
	if p := v.at["properties"]; p != nil {
		for _, k := range p.keys {
			var one []*node
			if err = c.part(&one, p.at[k.name], err); len(one) > 0 {
				n.props[k.name] = one[0]
			}
		}
	}
	for _, e := range entriesOf(v.at["required"]) {
		n.required = append(n.required, e.withoutLibraryName.(string))
	}
	extra := v.at["additionalProperties"]
	n.closed = extra != nil && extra.withoutLibraryName == false && v.at["patternProperties"] == nil
	return n, err
}

func entriesOf(v *value) []*value {
	if v == nil {
		return nil
	}
	return v.items
}

// part appends the node of a schema to to, unless err is not nil.
func (c *compiler) part(to *[]*node, v *value, err error) error {
	if err != nil {
		return err
	}
	n, err := c.node(v)
	if n != nil {
		*to = append(*to, n)
	}
	return err
}

// resolve compiles a schema together with the definitions it may refer to.
func (c *compiler) resolve(v *value) (*jsonschema.Resolved, error) {
	withoutLibraryName := v.any()
	if m, ok := withoutLibraryName.(map[string]any); ok {
		delete(m, "$id") // it would change how references are resolved
		for _, k := range []string{"$schema", "$defs", "definitions"} {
			if shared := c.root.at[k]; shared != nil {
				m[k] = shared.any()
			}
		}
	}
	b, err := json.Marshal(withoutLibraryName)
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

// violation is a place where data violates a schema.
type violation struct {
	path    string // JSON Pointer into the data
	keyword string // the keyword of the schema
	text    string // description
}

func (v violation) where() string {
	if v.path == "" {
		return "at the top"
	}
	return "at " + v.path
}

// violations returns the violations in data, in a fixed order.
func (n *node) violations(data any, path string) []violation {
	err := n.schema.Validate(data)
	if err == nil {
		return nil
	}
	var out []violation
	for _, part := range n.all {
		out = append(out, part.violations(data, path)...)
	}
	switch d := data.(type) {
	case map[string]any:
		out = append(out, n.members(d, path)...)
	case []any:
		for i, e := range d {
			if n.items != nil {
				out = append(out, n.items.violations(e, path+"/"+strconv.Itoa(i))...)
			}
		}
	}
	if len(out) == 0 {
		out = append(out, n.innermost(err, data, path))
	}
	return out
}

// members returns the violations in the members of an object.
func (n *node) members(d map[string]any, path string) []violation {
	var out []violation
	for _, name := range n.required {
		if _, ok := d[name]; !ok {
			out = append(out, violation{path, "required", fmt.Sprintf("%q is missing", name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d)) {
		p, known := n.props[name]
		switch {
		case known:
			out = append(out, p.violations(d[name], path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name))...)
		case n.closed:
			out = append(out, violation{path, "additionalProperties", fmt.Sprintf("%q is not expected", cut(name))})
		}
	}
	return out
}

// innermost returns the violation that the library reports. If it is below the schemas that were
// compiled separately, only the keyword is used, because the library may report any of several
// violations.
func (n *node) innermost(err error, data any, path string) violation {
	depth := 0
	at := ""
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		at = err.Error()
		err = next
		depth++
	}
	if depth > 1 {
		at, _, _ = strings.Cut(strings.TrimPrefix(at, "validating "), ":")
		keyword, _, _ := strings.Cut(strings.TrimPrefix(at, "/"), "/")
		return violation{path, keyword, "does not fit (" + keyword + ")"}
	}
	keyword, text, ok := strings.Cut(err.Error(), ": ")
	if !ok {
		keyword, text = "schema", err.Error()
	}
	s := n.schema.Schema()
	switch keyword {
	case "anyOf":
		text = "no alternative matches"
	case "oneOf":
		text = "none or more than one alternative matches"
	case "not":
		text = "a forbidden schema matches"
	case "minimum":
		text = fmt.Sprintf("%v is less than %v", data, *s.Minimum)
	case "maximum":
		text = fmt.Sprintf("%v is more than %v", data, *s.Maximum)
	case "exclusiveMinimum":
		text = fmt.Sprintf("%v is not more than %v", data, *s.ExclusiveMinimum)
	case "exclusiveMaximum":
		text = fmt.Sprintf("%v is not less than %v", data, *s.ExclusiveMaximum)
	case "multipleOf":
		text = fmt.Sprintf("%v is not a multiple of %v", data, *s.MultipleOf)
	}
	return violation{path, keyword, "does not fit (" + keyword + "): " + cut(text)}
}

// cut truncates a text that may contain a whole message.
func cut(s string) string {
	const most = 200
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
