package scripted

import (
	"regexp"
	"slices"
	"strings"
)

// placeholder is {{name}}.
var placeholder = regexp.MustCompile(`\{\{\s*([^{}]*?)\s*\}\}`)

// placeholders are those that are a name alone.
var placeholders = []string{"input", "inputs", "results"}

// resultOf begins the name of a placeholder for what a tool answered.
const resultOf = "result."

// unknownPlaceholder returns the first placeholder of a text that has no meaning.
func unknownPlaceholder(text string) (string, bool) {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		tool, named := strings.CutPrefix(m[1], resultOf)
		if !slices.Contains(placeholders, m[1]) && (!named || tool == "") {
			return m[1], true
		}
	}
	return "", false
}

// fill puts what was said into a text.
func (s *said) fill(text string) string {
	if !strings.Contains(text, "{{") {
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

// fillAll does so in every text of a JSON value, and leaves the value as it is.
func (s *said) fillAll(v any) any {
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
