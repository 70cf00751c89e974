package scripted

import (
	"regexp"
	"slices"
	"strings"
)

// placeholder matches {{name}}.
var placeholder = regexp.MustCompile(`\{\{\s*([^{}]*?)\s*\}\}`)

// placeholders are the placeholders without a parameter.
var placeholders = []string{"input", "inputs", "results"}

// resultOf is the prefix of placeholders for the result of a tool.
const resultOf = "result."

// unknownPlaceholder returns the first unknown placeholder of a text.
func unknownPlaceholder(text string) (string, bool) {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		tool, named := strings.CutPrefix(m[1], resultOf)
		if !slices.Contains(placeholders, m[1]) && (!named || tool == "") {
			return m[1], true
		}
	}
	return "", false
}

// fill replaces the placeholders of a text.
func (s *conversation) fill(text string) string {
	if s.literal || !strings.Contains(text, "{{") {
		return text
	}
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		switch name := placeholder.FindStringSubmatch(m)[1]; name {
		case "input":
			return s.input
		case "inputs":
			return strings.Join(s.inputs, "\n")
		case "results":
			return strings.Join(s.results, "\n")
		default:
			return s.result[strings.TrimPrefix(name, resultOf)]
		}
	})
}

// fillAll returns a JSON value with the placeholders in all texts replaced. v is not modified.
func (s *conversation) fillAll(v any) any {
	switch v := v.(type) {
	case string:
		return s.fill(v)
	case []any:
		filled := make([]any, len(v))
		for i, e := range v {
			filled[i] = s.fillAll(e)
		}
		return filled
	case map[string]any:
		filled := make(map[string]any, len(v))
		for k, e := range v {
			filled[k] = s.fillAll(e)
		}
		return filled
	}
	return v
}
