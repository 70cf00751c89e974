package a2av03

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// reader holds the first error in a text that is decoded.
type reader struct {
	form  Form
	fault error
}

// node is an object in the decoded text, with its path. A null field counts as missing. The
// methods return zero values for missing fields, and record an error for fields of the
// wrong type.
type node struct {
	*reader
	path   string
	fields map[string]*structpb.Value
}

// wrong records an error for a field, unless there is one already.
func (n node) wrong(name, problem string) {
	if n.fault == nil {
		n.fault = wire.Invalid(n.at(name), problem)
	}
}

func (n node) at(name string) string {
	if n.path == "" || name == "" {
		return n.path + name
	}
	return n.path + "." + name
}

var capital = regexp.MustCompile(`[A-Z]`)

// get returns a field, nil if it is missing. Except for RPC both of its ProtoJSON names are accepted.
func (n node) get(name string) *structpb.Value {
	v, ok := n.fields[name]
	if !ok && n.form != RPC {
		v = n.fields[capital.ReplaceAllStringFunc(name, func(c string) string { return "_" + strings.ToLower(c) })]
	}
	if _, null := v.GetKind().(*structpb.Value_NullValue); null {
		return nil
	}
	return v
}

func (n node) has(name string) bool { return n.get(name) != nil }

func (n node) text(name string) string {
	v := n.get(name)
	if _, ok := v.GetKind().(*structpb.Value_StringValue); v != nil && !ok {
		n.wrong(name, "must be a string")
	}
	return v.GetStringValue()
}

// needText returns a required text, which may be empty.
func (n node) needText(name string) string {
	if !n.has(name) {
		n.wrong(name, "is required")
	}
	return n.text(name)
}

func (n node) flag(name string) bool {
	v := n.get(name)
	if _, ok := v.GetKind().(*structpb.Value_BoolValue); v != nil && !ok {
		n.wrong(name, "must be true or false")
	}
	return v.GetBoolValue()
}

// number returns a 32-bit integer, nil if it is missing.
func (n node) number(name string) *int32 {
	v := n.get(name)
	if v == nil {
		return nil
	}
	d, ok := v.GetKind().(*structpb.Value_NumberValue)
	if !ok || d.NumberValue != math.Trunc(d.NumberValue) || d.NumberValue < math.MinInt32 || d.NumberValue > math.MaxInt32 {
		n.wrong(name, "must be a whole number")
		return nil
	}
	i := int32(d.NumberValue)
	return &i
}

// object returns a field that is an object. ok reports whether it exists.
func (n node) object(name string) (_ node, ok bool) {
	v := n.get(name)
	if v == nil {
		return node{reader: n.reader, path: n.at(name)}, false
	}
	if v.GetStructValue() == nil {
		n.wrong(name, "must be an object")
	}
	return node{n.reader, n.at(name), v.GetStructValue().GetFields()}, true
}

func (n node) list(name string) []*structpb.Value {
	v := n.get(name)
	if v != nil && v.GetListValue() == nil {
		n.wrong(name, "must be an array")
	}
	return v.GetListValue().GetValues()
}

func (n node) objects(name string) []node {
	var nodes []node
	for i, v := range n.list(name) {
		at := name + "[" + strconv.Itoa(i) + "]"
		if v.GetStructValue() == nil {
			n.wrong(at, "must be an object")
		}
		nodes = append(nodes, node{n.reader, n.at(at), v.GetStructValue().GetFields()})
	}
	return nodes
}

func (n node) texts(name string) []string {
	var texts []string
	for i, v := range n.list(name) {
		if _, ok := v.GetKind().(*structpb.Value_StringValue); !ok {
			n.wrong(name+"["+strconv.Itoa(i)+"]", "must be a string")
		}
		texts = append(texts, v.GetStringValue())
	}
	return texts
}

// data returns an object without decoding it.
func (n node) data(name string) *structpb.Struct {
	if _, ok := n.object(name); !ok {
		return nil
	}
	return n.get(name).GetStructValue()
}

// raw decodes base64 in the standard or the URL alphabet, with or without padding.
func (n node) raw(name string) []byte {
	s := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(n.text(name), "="))
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		n.wrong(name, "must be a base64 string")
	}
	return b
}

// kind checks the kind of an object, if it has one.
func (n node) kind(want string) {
	if n.form == RPC && n.has("kind") && n.text("kind") != want {
		n.wrong("kind", fmt.Sprintf("must be %q", want))
	}
}

// word returns the value of an enum in the words of the form.
func (n node) word(name string) string {
	if n.form == mixed {
		return plainWord(n.text(name))
	}
	return n.text(name)
}

func (n node) role() a2av1.Role {
	w := n.form.words()
	switch n.word("role") {
	case w.user:
		return a2av1.Role_ROLE_USER
	case w.agent:
		return a2av1.Role_ROLE_AGENT
	}
	n.wrong("role", fmt.Sprintf("must be %s or %s", w.user, w.agent))
	return 0
}

func (n node) state() a2av1.TaskState {
	said := n.word("state")
	states := n.form.words().states
	for s, word := range states {
		if word == said {
			return s
		}
	}
	n.wrong("state", "must be one of "+strings.Join(slices.Sorted(maps.Values(states)), ", "))
	return 0
}

// time returns a time, see ReadTime.
func (n node) time(name string) *timestamppb.Timestamp {
	if !n.has(name) {
		return nil
	}
	t, err := ReadTime(n.at(name), n.text(name))
	if err != nil && n.fault == nil {
		n.fault = err
	}
	return t
}

// ReadTime parses a time; without a zone it is in UTC. The error is INVALID_REQUEST and
// names the field.
func ReadTime(field, text string) (*timestamppb.Timestamp, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(layout, text); err == nil {
			return timestamppb.New(t), nil
		}
	}
	return nil, wire.Invalid(field, "must be a time such as 2006-01-02T15:04:05Z")
}
