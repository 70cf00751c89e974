package agent

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// Prompt returns a message as text for a model: its text parts, its data parts as JSON, and a
// short line for each file. A data part is left out if the text part before it has the same JSON.
func Prompt(m *a2av1.Message) string {
	parts := m.GetParts()
	if len(parts) == 1 {
		return promptPart(parts[0])
	}
	var b strings.Builder
	for i, p := range parts {
		if i > 0 && saysAlready(parts[i-1].GetText(), p) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		b.WriteString(promptPart(p))
	}
	return b.String()
}

// promptPart returns one part as text for a model.
func promptPart(p *a2av1.Part) string {
	switch c := p.GetContent().(type) {
	case *a2av1.Part_Text:
		return c.Text
	case *a2av1.Part_Data:
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if e.Encode(c.Data.AsInterface()) != nil {
			return "[data that cannot be shown]"
		}
		return strings.TrimSuffix(b.String(), "\n")
	case *a2av1.Part_Url:
		return "[file " + p.GetFilename() + " at " + c.Url + "]"
	case *a2av1.Part_Raw:
		return "[file " + p.GetFilename() + " of type " + p.GetMediaType() + "]"
	}
	return ""
}

// saysAlready reports whether text has the JSON of the data part p; see Values.
func saysAlready(text string, p *a2av1.Part) bool {
	d, ok := p.GetContent().(*a2av1.Part_Data)
	if !ok || text == "" {
		return false
	}
	data := d.Data.AsInterface()
	return slices.ContainsFunc(valuesIn(text, false), func(said any) bool { return reflect.DeepEqual(said, data) })
}

// maxQuoted is the maximum length, in bytes, of text that Quote returns without the ellipsis.
const maxQuoted = 256

// Quote returns s for use in a message. If s is long, it returns the beginning and an ellipsis.
func Quote(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return Excerpt(s, maxQuoted) + "…"
}

// Excerpt returns the beginning of s: at most n bytes, and no partial UTF-8 sequence at the end.
func Excerpt(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
