// Package cardsign signs agent cards and verifies the signatures of other cards. A
// signature is a JWS (RFC 7515) over the canonical JSON (RFC 8785) of a card without its
// signatures.
package cardsign

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/gowebpki/jcs"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// canonicalJSON returns the bytes that signatures of a card cover: its JSON without signatures,
// in the form of RFC 8785. Fields that A2A requires are always included, optional ones if
// they are set, and others if they differ from their default.
func canonicalJSON(card *a2av1.AgentCard) ([]byte, error) {
	tree, err := treeOf(card)
	if err != nil {
		return nil, err
	}
	return render(tree)
}

// compactJSON returns the canonical form without empty values at any depth. The JavaScript and
// Python SDKs sign and verify this form. For a card without empty values both forms are
// equal.
func compactJSON(card *a2av1.AgentCard) ([]byte, error) {
	tree, err := treeOf(card)
	if err != nil {
		return nil, err
	}
	full, ok := filled(tree)
	if !ok {
		full = map[string]any{}
	}
	return render(full)
}

func render(tree any) ([]byte, error) {
	b, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("rendering a card: %w", err)
	}
	if b, err = jcs.Transform(b); err != nil {
		return nil, fmt.Errorf("canonicalizing a card: %w", err)
	}
	return b, nil
}

func treeOf(card *a2av1.AgentCard) (map[string]any, error) {
	m := card.ProtoReflect()
	tree, err := object(m)
	delete(tree, m.Descriptor().Fields().ByName("signatures").JSONName())
	return tree, err
}

// object converts a message to a JSON tree.
func object(m protoreflect.Message) (map[string]any, error) {
	tree := map[string]any{}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) && !required(fd) {
			continue
		}
		v, err := field(fd, m.Get(fd))
		if err != nil {
			return nil, err
		}
		tree[fd.JSONName()] = v
	}
	return tree, nil
}

// required reports whether the proto definition marks a field as required.
func required(fd protoreflect.FieldDescriptor) bool {
	behaviors, _ := proto.GetExtension(fd.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
	return slices.Contains(behaviors, annotations.FieldBehavior_REQUIRED)
}

func field(fd protoreflect.FieldDescriptor, v protoreflect.Value) (any, error) {
	switch {
	case fd.IsMap():
		entries := map[string]any{}
		var err error
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			entries[k.String()], err = single(fd.MapValue(), v)
			return err == nil
		})
		return entries, err
	case fd.IsList():
		list := make([]any, v.List().Len())
		for i := range list {
			var err error
			if list[i], err = single(fd, v.List().Get(i)); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return single(fd, v)
}

// single converts one value to its ProtoJSON form.
func single(fd protoreflect.FieldDescriptor, v protoreflect.Value) (any, error) {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		switch m := v.Message().Interface().(type) {
		case *structpb.Struct:
			return m.AsMap(), nil
		case *structpb.Value:
			return m.AsInterface(), nil
		}
		return object(v.Message())
	case protoreflect.EnumKind:
		if d := fd.Enum().Values().ByNumber(v.Enum()); d != nil {
			return string(d.Name()), nil
		}
		return int32(v.Enum()), nil
	case protoreflect.BytesKind:
		return base64.StdEncoding.EncodeToString(v.Bytes()), nil
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return strconv.FormatInt(v.Int(), 10), nil
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return strconv.FormatUint(v.Uint(), 10), nil
	}
	return v.Interface(), nil
}

// filled removes empty values from a tree. It returns false if nothing remains.
func filled(v any) (any, bool) {
	switch v := v.(type) {
	case nil:
		return nil, false
	case string:
		return v, v != ""
	case []any:
		var list []any
		for _, item := range v {
			if item, ok := filled(item); ok {
				list = append(list, item)
			}
		}
		return list, len(list) > 0
	case map[string]any:
		entries := map[string]any{}
		for k, item := range v {
			if item, ok := filled(item); ok {
				entries[k] = item
			}
		}
		return entries, len(entries) > 0
	}
	return v, true
}
