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
func Arguments(written string) map[string]json.RawMessage {
	if strings.TrimSpace(written) == "" {
		return map[string]json.RawMessage{}
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(written), &object) != nil || object == nil {
		text, _ := json.Marshal(written) //nolint:errchkjson // a text
		return map[string]json.RawMessage{"arguments": text}
	}
	return object
}
