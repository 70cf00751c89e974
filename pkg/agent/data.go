package agent

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// Data returns the data of a message as encoding/json decodes it: the first of its Values. ok is false
// if it has none.
func Data(m *a2av1.Message) (data any, ok bool) {
	values := Values(m)
	if len(values) == 0 {
		return nil, false
	}
	return values[0], true
}

// JSONIn returns the JSON object in a text that a model wrote, as Data finds it; empty if it has none.
func JSONIn(text string) string {
	values := valuesIn(text, true)
	if len(values) == 0 {
		return ""
	}
	if _, ok := values[0].(map[string]any); !ok {
		return ""
	}
	b, _ := json.Marshal(values[0]) // cannot fail for what was decoded
	return string(b)
}

// Values returns what the data of a message may be, the likeliest first, as encoding/json decodes it.
// If the message has a data part, it is that of the first one alone. Otherwise it is the JSON in its
// text, which models surround with other things: a block of thoughts, a Markdown code block, or
// sentences. JSON that is all of the text may be of any type; within sentences only objects and arrays
// count: the last object first, empty ones last. JSON that lacks its end is not data, and neither are
// its parts.
func Values(m *a2av1.Message) []any {
	for _, p := range m.GetParts() {
		if d, ok := p.GetContent().(*a2av1.Part_Data); ok {
			return []any{d.Data.AsInterface()}
		}
	}
	return valuesIn(Text(m), false)
}

// valuesIn returns the values in a text. exact says that numbers are json.Number, as they are written.
func valuesIn(text string, exact bool) []any {
	answer := AfterThoughts(text)
	for _, whole := range []string{text, answer} {
		for _, document := range []string{whole, unfenced(whole)} {
			var data any
			if json.Valid([]byte(document)) && decoder(document, exact).Decode(&data) == nil {
				return []any{data}
			}
		}
	}
	return embedded(answer, exact)
}

// unfenced returns text without surrounding white space and, if all of it is a Markdown code
// block, without the fences.
func unfenced(text string) string {
	text = strings.TrimSpace(text)
	inner, ok := strings.CutPrefix(text, "```")
	if !ok {
		return text
	}
	if inner, ok = strings.CutSuffix(inner, "```"); !ok {
		return text
	}
	_, inner, _ = strings.Cut(inner, "\n") // the first line names the language
	return inner
}

// decoder returns a decoder of a text. exact is that of valuesIn.
func decoder(text string, exact bool) *json.Decoder {
	d := json.NewDecoder(strings.NewReader(text))
	if exact {
		d.UseNumber()
	}
	return d
}

// embedded returns the objects and arrays within a text that are not part of another one, in the order
// of Values. It reads at most 16 times the length of the text.
func embedded(text string, exact bool) []any {
	var objects, arrays, empty []any
	for work := 16 * len(text); work > 0; {
		start := strings.IndexAny(text, "{[")
		if start < 0 {
			break
		}
		text = text[start:]
		if !begins(text) {
			text = text[1:]
			continue
		}
		d := decoder(text, exact)
		var data any
		err := d.Decode(&data)
		var invalid *json.SyntaxError
		switch {
		case err == nil:
			object, isObject := data.(map[string]any)
			array, _ := data.([]any)
			switch {
			case len(object)+len(array) == 0:
				empty = append(empty, data)
			case isObject:
				objects = append(objects, data)
			default:
				arrays = append(arrays, data)
			}
			text = text[d.InputOffset():]
			work -= int(d.InputOffset())
		case errors.As(err, &invalid):
			text = text[1:]
			work -= int(invalid.Offset)
		case errors.Is(err, io.ErrUnexpectedEOF): // the value lacks its end, and all that follows is a part of it
			work = 0
		default:
			text = text[1:]
			work -= len(text)
		}
	}
	slices.Reverse(objects)
	slices.Reverse(arrays)
	return slices.Concat(objects, arrays, empty)
}

// begins reports whether an object or array may begin with text, so that most brackets in sentences and
// in code cost no decoder.
func begins(text string) bool {
	next := strings.TrimLeft(text[1:], " \t\r\n")
	if next == "" {
		return true // it lacks its end
	}
	if text[0] == '{' {
		return next[0] == '"' || next[0] == '}'
	}
	return strings.IndexByte(`[{"]-0123456789tfn`, next[0]) >= 0
}
