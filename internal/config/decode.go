package config

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"buf.build/go/protoyaml"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// decode turns the nodes into the message and checks it against its rules.
func (d *document) decode() (*teamv1.ServerConfig, error) {
	c := &teamv1.ServerConfig{}
	return c, d.decodeInto(c)
}

// decodeInto is decode for the message of another file. The error is that of
// rules which make no sense.
func (d *document) decodeInto(m proto.Message) error {
	o := protoyaml.UnmarshalOptions{CustomUnmarshaler: &graft{root: d.root}}
	if err := o.Unmarshal(d.text(), m); err != nil {
		d.undecoded(err)
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

// graft puts nodes that are read and changed already in the place of those the
// decoder reads: it is called with the root first.
type graft struct {
	root *yaml.Node
	done bool
}

// Unmarshal implements protoyaml.CustomUnmarshaler; it decodes nothing itself.
func (g *graft) Unmarshal(n *yaml.Node, _ proto.Message) (bool, error) {
	if !g.done {
		g.done = true
		*n = *g.root
	}
	return false, nil
}

var decodeError = regexp.MustCompile(`^:(\d+):(\d+) `)

// undecoded reports the decoder's errors. Their place is in their text only.
func (d *document) undecoded(err error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		m := decodeError.FindStringSubmatch(err.Error())
		if m == nil {
			d.faultAt(1, 1, err.Error(), "")
			continue
		}
		line, _ := strconv.Atoi(m[1])
		col, _ := strconv.Atoi(m[2])
		if parent, n := d.find(d.root, line, col); n != nil {
			d.damage(parent, n)
		}
		message, hint := reword(errors.Unwrap(err).Error())
		d.faultAt(line, col, message, hint)
	}
}

// find returns the node that begins at a place, and the one above it.
func (d *document) find(n *yaml.Node, line, col int) (parent, found *yaml.Node) {
	for _, c := range n.Content {
		if c.Line == line && c.Column == col && c.Kind == yaml.ScalarNode {
			return n, c
		}
		if p, f := d.find(c, line, col); f != nil {
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

// reword says in a user's words what the decoder found.
func reword(cause string) (message, hint string) {
	if m := badEnum.FindStringSubmatch(cause); m != nil {
		known := strings.Fields(m[2])
		word, err := strconv.Unquote(m[1])
		if err != nil {
			word = m[1]
		}
		return "unknown word " + m[1], suggest(word, known)
	}
	switch {
	case badNumber.MatchString(cause):
		return "expected a number", "write it without quotes or units"
	case badBool.MatchString(cause):
		return "expected true or false", "write true or false, without quotes"
	case strings.Contains(cause, "duration"):
		return "expected a duration", "write a number with its unit, for example 500ms, 90s or 5m"
	}
	return "this value cannot be read", "docs/configuration.md shows what can be here"
}

// violation reports a rule that is not kept, unless it follows from a fault
// that is reported already.
func (d *document) violation(v *validate.Violation) {
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
	n, _ := d.at(path...)
	if v.GetForKey() {
		n = d.keyAt(path...)
	}
	if d.damaged[n] || n == d.root && len(path) > 1 {
		return
	}
	message, hint := advice(v, n.Value)
	d.fault(n, message, hint)
}

func itoa(i int) string { return strconv.Itoa(i) }

// advice splits a rule's text into what is wrong and what to do. Rules put the value in
// quotation marks as it is.
func advice(v *validate.Violation, value string) (message, hint string) {
	if v.GetRuleId() == "required" {
		return "a value is missing", "give it one of its keys"
	}
	return cutHint(strings.ReplaceAll(v.GetMessage(), `"`+value+`"`, quote(value)))
}

var hintBehind = regexp.MustCompile(`(?s)^((?:"(?:[^"\\]|\\.)*"|[^"])*?); (.*)$`)

// cutHint splits a message at the first semicolon that is not within quotation marks.
func cutHint(text string) (message, hint string) {
	if m := hintBehind.FindStringSubmatch(text); m != nil {
		return m[1], m[2]
	}
	return text, ""
}
