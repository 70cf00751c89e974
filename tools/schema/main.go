// Command schema adds the short forms of the configuration file to its JSON Schema, which the generator derives from
// the messages alone: words of enumerations in lower case, texts in place of messages, and the further keys that the
// options of team/v1/setting.proto declare.
//
//	go run ./tools/schema api/schema/team.schema.json
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// object is an object of JSON.
type object = map[string]any

func main() {
	if err := rewrite(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

// rewrite adds the short forms to a file.
func rewrite(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var schema object
	if err := json.Unmarshal(data, &schema); err != nil {
		return err
	}
	lowerWords(schema)
	defs, _ := schema["$defs"].(object)
	for _, name := range slices.Sorted(maps.Keys(defs)) {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.TrimSuffix(name, ".schema.json")))
		m, ok := d.(protoreflect.MessageDescriptor)
		if err != nil || !ok {
			continue
		}
		def, _ := defs[name].(object)
		addKeys(defs, def, m)
	}
	for _, name := range slices.Sorted(maps.Keys(defs)) {
		if d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.TrimSuffix(name, ".schema.json"))); err == nil {
			if text, _ := proto.GetExtension(d.Options(), teamv1.E_TextSets).(string); text != "" {
				defs[name] = object{"description": defs[name].(object)["description"], "anyOf": []any{object{"type": "string", "description": "The same as " + text + " alone."}, defs[name]}} //nolint:forcetypeassert // a definition
			}
		}
	}
	out, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(out, '\n'), 0o644)
}

// lowerWords allows each enumeration of a schema to be written in lower case.
func lowerWords(of any) {
	switch v := of.(type) {
	case []any:
		for _, item := range v {
			lowerWords(item)
		}
	case object:
		if words, ok := v["enum"].([]any); ok && v["type"] == "string" && words[0] != "Infinity" {
			var lower []any
			for _, w := range words {
				lower = append(lower, strings.ToLower(fmt.Sprint(w)))
			}
			v["enum"] = append(lower, words...)
		}
		for _, item := range v {
			lowerWords(item)
		}
	}
}

// addKeys adds the further keys of a message to its definition.
func addKeys(defs, def object, m protoreflect.MessageDescriptor) {
	properties, ok := def["properties"].(object)
	if !ok {
		return
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		own, ok := properties[f.TextName()].(object)
		if !ok {
			continue
		}
		also, _ := proto.GetExtension(f.Options(), teamv1.E_Also).([]string)
		for _, name := range also {
			properties[name] = own
		}
		if ofFile, _ := proto.GetExtension(f.Options(), teamv1.E_FromFile).(bool); ofFile {
			properties[f.TextName()+"_file"] = object{"type": "string", "description": "File with the text of " + f.TextName() + ", relative to this file."}
		}
		if text, _ := proto.GetExtension(f.Options(), teamv1.E_TextValuesSet).(string); text != "" {
			own["additionalProperties"] = object{"anyOf": []any{object{"type": "string", "description": "The same as " + text + " alone."}, own["additionalProperties"]}}
		}
		if inline, _ := proto.GetExtension(f.Options(), teamv1.E_Inline).(bool); inline {
			inner, _ := defs[string(f.Message().FullName())+".schema.json"].(object)
			addKeys(defs, inner, f.Message())
			keys, _ := inner["properties"].(object)
			for name, key := range keys {
				if properties[name] == nil {
					properties[name] = key
				}
			}
		}
	}
}
