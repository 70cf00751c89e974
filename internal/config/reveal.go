package config

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// secretKeys are the keys of the definition whose values may be secrets or contain
// some.
var secretKeys = []string{"api_key", "bearer", "sha256", "key", "cert", "command", "env"}

// harmlessKeys returns the keys of files and test files whose values hold no secrets.
var harmlessKeys = sync.OnceValue(func() map[string]bool {
	keys := map[string]bool{}
	for alias := range aliases {
		keys[alias] = true
	}
	seen := map[protoreflect.FullName]bool{}
	var visit func(m protoreflect.MessageDescriptor)
	visit = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			keys[f.TextName()] = !slices.Contains(secretKeys, f.TextName())
			if f.IsMap() {
				f = f.MapValue()
			}
			if f.Message() != nil && strings.HasPrefix(string(f.Message().FullName()), "team.") {
				visit(f.Message())
			}
		}
	}
	visit((&teamv1.ServerConfig{}).ProtoReflect().Descriptor())
	visit((&teamv1.ScenarioFile{}).ProtoReflect().Descriptor())
	return keys
})

// credentials matches addresses that may hold a secret, and passwords in connection strings.
var credentials = regexp.MustCompile(`\S@\S|://\S*\?|password=`)

// secretWords matches names of secrets wherever they are on a line: where the line is not
// the YAML that its author meant, what follows such a name may be the secret.
var secretWords = regexp.MustCompile(`(?i)api[_-]?key|bearer|secret|token|passw|credential|sha256|\bauth\b`)

// variables matches a key whose value only names a variable, and one whose value is a
// mapping: the keys of that are checked themselves.
var variables = regexp.MustCompile(`[A-Za-z0-9_]+: *["']?\$\{[A-Za-z_][A-Za-z0-9_]*\}["']?|\b(auth|api_keys): *\[? *\{`)

// mentionsSecret reports whether a line names a secret whose value is not a variable.
// Names that the schema has for other things, such as max_tokens, do not count.
func mentionsSecret(text string) bool {
	for _, word := range strings.FieldsFunc(variables.ReplaceAllString(text, ""), func(r rune) bool { return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if secretWords.MatchString(word) && (!harmlessKeys()[word] || word == "auth" || word == "api_keys") {
			return true
		}
	}
	return false
}

// variableOnly matches a value that only names a variable and so is not a secret.
var variableOnly = regexp.MustCompile(`^["']?\$\{[A-Za-z_][A-Za-z0-9_]*\}["']?\s*([,}\]#]|$)`)

// shown returns the source line of a fault; empty unless every key on the line is known
// to hold no secret. An unknown key, such as an id, is accepted if nothing follows it
// on the line, or only a mapping whose keys are checked themselves. A line without a
// key, such as an entry of a list, belongs to the key above it.
func shown(lines []string, line int) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	text, _, _ := strings.Cut(lines[line-1], " #") // a comment may hold anything
	text = strings.TrimRight(text, " \r")
	if credentials.MatchString(text) || mentionsSecret(text) {
		return ""
	}
	keys := keysOf(text)
	for _, k := range keys {
		harmless, known := harmlessKeys()[k.name]
		if !harmless && !variableOnly.MatchString(k.value) && (known || k.value != "" && !strings.HasPrefix(k.value, "{")) {
			return ""
		}
	}
	if len(keys) == 0 && !continues(lines[:line-1]) {
		return ""
	}
	return text
}

// continues reports whether a line without a key may be shown below these lines.
func continues(above []string) bool {
	for _, text := range slices.Backward(above) {
		if keys := keysOf(text); len(keys) > 0 {
			return !mentionsSecret(text) && !slices.ContainsFunc(keys, func(k keyOnLine) bool { return !harmlessKeys()[k.name] })
		}
	}
	return false
}

// keyOnLine is the text before a colon and the text after it on the line.
type keyOnLine struct{ name, value string }

// keysOf finds the keys on a line. The line may not be YAML, so in doubt a text counts
// as a key.
func keysOf(line string) (keys []keyOnLine) {
	start := 0 // start of a possible key
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case '{', '[', ',':
			start = i + 1
		case '"', '\'':
			if end := quotedEnd(line, i); end > 0 && keyText(line[start:i]) == "" { // otherwise the quote is within a word
				i = end
			}
		case ':':
			if rest := line[i+1:]; strings.HasPrefix(rest, "//") || port.MatchString(rest) {
				continue
			}
			keys = append(keys, keyOnLine{strings.Trim(keyText(line[start:i]), `"'`), strings.TrimSpace(line[i+1:])})
			start = i + 1
		}
	}
	return keys
}

// port matches what follows the colon of HOST:PORT.
var port = regexp.MustCompile(`^\d+([\s,\]}"'/]|$)`)

// keyText returns a key without the characters that may precede it: those of list
// entries, anchors and tags.
func keyText(s string) string {
	words := strings.Fields(s)
	for len(words) > 0 && strings.ContainsAny(words[0][:1], "-?&!") {
		words = words[1:]
	}
	return strings.Join(words, " ")
}

// quotedEnd returns the end of the quoted text that begins at i; 0 if it has no end.
func quotedEnd(line string, i int) int {
	for j := i + 1; j < len(line); j++ {
		switch {
		case line[i] == '"' && line[j] == '\\':
			j++
		case line[j] == line[i]:
			return j
		}
	}
	return 0
}

// keyStart matches the part of a key that looks like a key.
var keyStart = regexp.MustCompile(`^[A-Za-z0-9_.-]*`)

// keyName returns a key as a message may show it: up to the first character that no known
// key has, since what follows may be a value whose colon is missing.
func keyName(key string) string {
	if start := keyStart.FindString(key); start != key {
		return start + "…"
	}
	return key
}
