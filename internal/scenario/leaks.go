package scenario

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentteams/team-server/pkg/secret"
)

// shortestSecret is the length in bytes from which a secret is looked for in a record; shorter ones are found by chance.
const shortestSecret = 8

// leaks reports whether a scalar of a document holds a secret, as it is or encoded.
func leaks(n *yaml.Node, secrets []secret.Secret) bool {
	if n.Kind == yaml.ScalarNode {
		return slices.ContainsFunc(secrets, func(s secret.Secret) bool { return holds(n.Value, s.Reveal()) })
	}
	return slices.ContainsFunc(n.Content, func(below *yaml.Node) bool { return leaks(below, secrets) })
}

// holds reports whether a text has a secret in it: as it is, in other lines, in quotes of JSON or of an expression, in
// the strings of the JSON that the text is, or in base64.
func holds(text, secret string) bool {
	plain := flat(secret)
	if len(plain) < shortestSecret {
		return false
	}
	text = strings.ReplaceAll(text, "$${", "${") // of texts that are read with variables
	raw, err := base64.StdEncoding.DecodeString(text)
	quoted := strconv.Quote(secret)
	return strings.Contains(flat(text), plain) || strings.Contains(text, quoted[1:len(quoted)-1]) ||
		strings.Contains(unescaped(text), plain) || err == nil && strings.Contains(flat(string(raw)), plain)
}

// flat returns a text with one space for each run of white space: how a text is broken into lines does not hide it.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// unescaped returns the strings of a text in JSON, or "" if it is none.
func unescaped(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return ""
	}
	var all strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			all.WriteString(v + "\n")
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			for key, value := range v {
				walk(key)
				walk(value)
			}
		}
	}
	walk(v)
	return flat(all.String())
}
