package model

import (
	"encoding/json"
	"strings"
)

// Nothing replaces an empty message, because endpoints reject messages without content.
const Nothing = "(empty)"

// Text returns s, or Nothing if it is blank.
func Text(s string) string {
	if strings.TrimSpace(s) == "" {
		return Nothing
	}
	return s
}

// Arguments returns the arguments of a tool call for a provider that only accepts objects. If the
// model wrote something else, it is passed on under the key "arguments".
func Arguments(written string) map[string]any {
	if strings.TrimSpace(written) == "" {
		return map[string]any{}
	}
	var object map[string]any
	if json.Unmarshal([]byte(written), &object) != nil || object == nil {
		return map[string]any{"arguments": written}
	}
	return object
}
