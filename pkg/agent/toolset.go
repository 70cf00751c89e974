package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// ToolSet is a group of tools whose list is not known when the agent is built, such as the tools
// of an MCP server. Implementations must be safe for concurrent use.
type ToolSet interface {
	// Name returns the name of the set, for errors.
	Name() string
	// Tools returns the tools that are available now. A run calls Tools when it needs the list
	// and offers the model that list until its end; a tool that a model calls is looked up by its
	// name.
	Tools(ctx context.Context) ([]Tool, error)
}

// Mailbox is an optional interface of a ToolSet that brings messages of others to the agent that has
// the tools. The agent's next model turn is shown what is unread. Once that turn has ended, it is
// acknowledged.
type Mailbox interface {
	ToolSet
	// Unread returns messages after a number, oldest first, as texts for a model, and the number
	// of the last one. It does not return what was acknowledged, and it need not return everything
	// at once. The number is 0 if there is no message.
	Unread(ctx context.Context, after int64) (texts []string, upTo int64, err error)
	// Acknowledge marks all messages up to a number as read. It may be repeated.
	Acknowledge(ctx context.Context, upTo int64) error
}

// maxToolName is the maximum number of characters in the name of a tool.
const maxToolName = 64

// ToolName turns name into a valid name of a tool: at most 64 letters, digits, "_" and "-". Each
// byte of other characters becomes "_". A longer name is truncated and ends in a hash of the
// whole. A valid name is returned unchanged.
func ToolName(name string) string {
	b := []byte(name)
	for i, c := range b {
		if !toolChar(c) {
			b[i] = '_'
		}
	}
	if len(b) > maxToolName {
		sum := sha256.Sum256([]byte(name))
		b = append(b[:maxToolName-9], "_"+hex.EncodeToString(sum[:4])...)
	}
	return string(b)
}

// ToolParameters returns the JSON Schema of a tool's arguments in a form that all providers of models accept: an object
// with properties, of which there may be none, and each of which has a schema that is an object. It accepts the same
// arguments, if they are an object.
func ToolParameters(schema json.RawMessage) json.RawMessage {
	var keys, properties map[string]json.RawMessage
	_ = json.Unmarshal(schema, &keys)
	_ = json.Unmarshal(keys["properties"], &properties)
	changed := properties == nil || keys["type"] == nil
	for name, of := range properties {
		if string(of) == "true" {
			properties[name], changed = json.RawMessage("{}"), true
		}
	}
	if !changed {
		return schema
	}
	out := map[string]any{"type": "object", "properties": properties}
	if properties == nil {
		out["properties"] = map[string]any{}
	}
	for key, value := range keys {
		if _, set := out[key]; !set || key == "type" && string(value) != "null" {
			out[key] = value
		}
	}
	whole, err := json.Marshal(out)
	if err != nil {
		return schema
	}
	return whole
}

// toolChar reports whether c may appear in the name of a tool.
func toolChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
