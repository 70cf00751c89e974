package source

import (
	"cmp"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"buf.build/go/protoyaml"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
)

// Decode converts the nodes to a message and checks it against the message's validation rules. It returns an error only if
// a validation rule itself is invalid; faults are added to the document.
func (d *Document) Decode(m proto.Message) error {
	capitalize(d.root, m.ProtoReflect().Descriptor())
	o := protoyaml.UnmarshalOptions{CustomUnmarshaler: &nodeReplacer{root: d.root}}
	if err := o.Unmarshal(d.text(), m); err != nil {
		d.reportDecodeErrors(err)
	}
	err := protovalidate.Validate(m)
	var bad *protovalidate.ValidationError
	if !errors.As(err, &bad) {
		return err
	}
	for _, v := range bad.Violations {
		d.violation(v.Proto)
	}
	return nil
}

// nodeReplacer replaces the tree that the decoder parsed by one that was already checked and
// modified. The decoder calls Unmarshal with the root first.
type nodeReplacer struct {
	root *yaml.Node
	done bool
}

// Unmarshal implements protoyaml.CustomUnmarshaler. It never decodes a node itself.
func (g *nodeReplacer) Unmarshal(n *yaml.Node, _ proto.Message) (bool, error) {
	if !g.done {
		g.done = true
		*n = *g.root
	}
	return false, nil
}

var decodeError = regexp.MustCompile(`^:(\d+):(\d+) `)

// reportDecodeErrors adds a fault for each error of the decoder. Their positions are only available
// in the error text.
func (d *Document) reportDecodeErrors(err error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		m := decodeError.FindStringSubmatch(err.Error())
		if m == nil {
			d.FaultAt(1, 1, err.Error(), "")
			continue
		}
		line, _ := strconv.Atoi(m[1])
		col, _ := strconv.Atoi(m[2])
		written := ""
		if parent, n := find(d.root, line, col); n != nil {
			d.damage(parent, n)
			written = n.Value
		}
		message, hint := reword(errors.Unwrap(err).Error(), written)
		d.FaultAt(line, col, message, hint)
	}
}

// find returns the scalar that begins at a line and column, and its parent.
func find(n *yaml.Node, line, col int) (parent, found *yaml.Node) {
	for _, c := range n.Content {
		if c.Line == line && c.Column == col && c.Kind == yaml.ScalarNode {
			return n, c
		}
		if p, f := find(c, line, col); f != nil {
			return p, f
		}
	}
	return nil, nil
}

var (
	badEnum   = regexp.MustCompile(`^unknown enum value ("[^"]*"), expected one of \[\S+ ?(.*)\]$`)
	badNumber = regexp.MustCompile(`^invalid (integer|float): `)
	badBool   = regexp.MustCompile(`^expected (?:bool, got|tag !!bool, got) (.*)$`)
)

// reword translates an error of the decoder about a text into a message and a hint for users.
func reword(cause, written string) (message, hint string) {
	if m := badEnum.FindStringSubmatch(cause); m != nil {
		known := strings.Fields(strings.ToLower(m[2]))
		word, err := strconv.Unquote(m[1])
		if err != nil {
			word = m[1]
		}
		return "unknown value " + m[1], Suggest(strings.ToLower(word), known)
	}
	switch {
	case badNumber.MatchString(cause):
		return "expected a number", cmp.Or(asNumber(written), "write it without quotes or units")
	case badBool.MatchString(cause):
		return "expected true or false", "write true or false, without quotes"
	case strings.Contains(cause, "duration"):
		return "expected a duration", cmp.Or(asDuration(written), "write a number with its unit, for example 500ms, 90s or 5m")
	}
	return "this value is invalid", "docs/configuration.md lists the values that are allowed here"
}

var (
	money = regexp.MustCompile(`^[$€]? *([0-9]+(?:\.[0-9]+)?) *(?i:usd|eur|dollars?|[$€])?$`)
	times = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) *([A-Za-z]*)$`)
)

// asNumber returns how to write a price or an amount as a number, or "".
func asNumber(written string) string {
	if m := money.FindStringSubmatch(written); m != nil {
		return "write " + m[1]
	}
	return ""
}

// asDuration returns how to write a duration in other words, or "".
func asDuration(written string) string {
	m := times.FindStringSubmatch(written)
	if m == nil {
		return ""
	}
	units := map[string]string{"": "s", "sec": "s", "secs": "s", "second": "s", "min": "m", "mins": "m", "minute": "m", "hr": "h", "hrs": "h", "hour": "h"}
	switch unit := strings.ToLower(m[2]); {
	case unit == "d" || unit == "day" || unit == "days":
		if days, err := strconv.Atoi(m[1]); err == nil {
			return "write " + strconv.Itoa(days*24) + "h"
		}
	case units[unit] != "" || units[strings.TrimSuffix(unit, "s")] != "":
		return "write " + m[1] + cmp.Or(units[unit], units[strings.TrimSuffix(unit, "s")])
	}
	return ""
}

// violation reports a violated rule, unless the value already has a fault.
func (d *Document) violation(v *validate.Violation) {
	var path []any
	for _, e := range v.GetField().GetElements() {
		path = append(path, e.GetFieldName())
		switch s := e.GetSubscript().(type) {
		case *validate.FieldPathElement_Index:
			path = append(path, int(s.Index)) //nolint:gosec // an index of a list in memory
		case *validate.FieldPathElement_StringKey:
			path = append(path, s.StringKey)
		}
	}
	n, _ := d.Find(path...)
	if v.GetForKey() {
		n = d.Key(path...)
	}
	if d.damaged[n] || n == d.root && len(path) > 1 {
		return
	}
	for _, value := range Pairs(n) {
		if d.damaged[value] { // what the rule misses may be what was wrong in it
			return
		}
	}
	message, hint := advice(v, n.Value)
	d.NodeFault(n, message, hint)
}

// advice splits the text of a rule into what is wrong and what to do. Rule texts contain the value
// in quotation marks, unescaped.
func advice(v *validate.Violation, value string) (message, hint string) {
	if v.GetRuleId() == "required" {
		return "the value is missing", "set one of its keys"
	}
	return CutHint(strings.ReplaceAll(v.GetMessage(), `"`+value+`"`, strconv.Quote(value)))
}

var hintAfterSemicolon = regexp.MustCompile(`(?s)^((?:"(?:[^"\\]|\\.)*"|[^"])*?); (.*)$`)

// CutHint splits a message at the first semicolon outside quotation marks.
func CutHint(text string) (message, hint string) {
	if m := hintAfterSemicolon.FindStringSubmatch(text); m != nil {
		return m[1], m[2]
	}
	return text, ""
}
