package openai

import (
	"bytes"
	"encoding/json"
	"slices"
)

// labels are the fields of an object that each of its pieces repeats as a whole. All other texts are
// continued by later pieces.
var labels = []string{"id", "type", "index", "format", "name", "role", "object"}

// merge returns a value of an earlier piece of a stream continued by that of a later piece: texts are
// joined, lists appended, and objects merged. Elements of lists with the same index are one object.
// Numbers, and the fields in labels, are replaced. This is what the client libraries of OpenAI do.
func merge(earlier, later any) any {
	switch l := later.(type) {
	case nil:
		return earlier
	case string:
		if e, ok := earlier.(string); ok {
			return e + l
		}
	case []any:
		if e, ok := earlier.([]any); ok {
			return mergeLists(e, l)
		}
		return mergeLists(nil, l)
	case map[string]any:
		if e, ok := earlier.(map[string]any); ok {
			mergeObjects(e, l)
			return e
		}
	}
	return later
}

func mergeObjects(to, from map[string]any) {
	for key, v := range from {
		if v != nil && slices.Contains(labels, key) {
			to[key] = v
			continue
		}
		to[key] = merge(to[key], v)
	}
}

func mergeLists(to, from []any) []any {
	for _, v := range from {
		object, _ := v.(map[string]any)
		at := -1
		if index, ok := object["index"]; ok {
			at = slices.IndexFunc(to, func(e any) bool {
				other, _ := e.(map[string]any)
				return other["index"] == index
			})
		}
		if at < 0 {
			to = append(to, v)
			continue
		}
		to[at] = merge(to[at], v)
	}
	return to
}

// decode returns a JSON value whose numbers keep their digits; nil if it is not valid.
func decode(raw []byte) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}
