package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Arguments parses the arguments of a call as a model wrote them: a JSON object, which may be
// wrapped in a JSON string. An empty text has no arguments. The error tells the model what to
// change.
func Arguments(text string) (map[string]json.RawMessage, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var args map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &args) == nil {
		return args, nil
	}
	if inner, ok := Unwrap(text); ok && json.Unmarshal([]byte(inner), &args) == nil {
		return args, nil
	}
	return nil, errors.New(`the arguments are not a JSON object; write {"task": "…"}`)
}

// Unwrap returns the JSON object inside a JSON string; ok is false if there is none.
func Unwrap(text string) (inner string, ok bool) {
	var object map[string]json.RawMessage
	ok = json.Unmarshal([]byte(text), &inner) == nil && json.Unmarshal([]byte(inner), &object) == nil
	return inner, ok && object != nil
}

// String returns a string argument. It is "" if the argument is missing or null. If required is
// true, a missing or blank argument is an error. The error tells the model what to change.
func String(args map[string]json.RawMessage, name string, required bool) (string, error) {
	raw, ok := args[name]
	if !ok || string(raw) == "null" {
		if required {
			return "", fmt.Errorf("argument %s is missing; add %s: a string", name, name)
		}
		return "", nil
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return "", fmt.Errorf("argument %s must be a string, got %s; write it in quotes", name, Kind(raw))
	}
	if text = strings.TrimSpace(text); text == "" && required {
		return "", fmt.Errorf("argument %s is empty; write what is to be done", name)
	}
	return text, nil
}

// Kind returns the type of a JSON value in words. raw must not be empty.
func Kind(raw json.RawMessage) string {
	switch strings.TrimSpace(string(raw))[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	}
	return "a number"
}
