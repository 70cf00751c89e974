package model

import (
	"encoding/json"
	"strings"
)

// Nothing stands for an empty message: endpoints refuse one without content.
const Nothing = "(empty)"

// Text is a text that an endpoint takes.
func Text(s string) string {
	if strings.TrimSpace(s) == "" {
		return Nothing
	}
	return s
}

// Arguments are the arguments of a call for a provider that takes objects only.
// What the model wrote and is none is shown to it as it was.
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
