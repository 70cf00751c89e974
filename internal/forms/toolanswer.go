package forms

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// ReadToolAnswer returns what the answer m to the question q of a tool says: "decline", "cancel", or
// the fields, as a JSON object in text or data, or the bare value of the only field. Data may also be
// {"action": WORD, "content": OBJECT}. Any other answer is an error, which names the field and says
// what was expected.
func ReadToolAnswer(q *teamv1.ToolQuestion, m *a2av1.Message) (*teamv1.ToolAnswer, error) {
	f, err := ParseToolForm(q)
	if err != nil {
		return nil, err
	}
	text, data, err := onlyPart(m)
	if err != nil {
		return nil, err
	}
	text = strings.TrimSpace(text)
	if data == nil {
		data, _ = decode(text)
	} else if _, ok := data.(map[string]any); !ok {
		return nil, fmt.Errorf("is not an object; %s", f.expected())
	}
	object, ok := data.(map[string]any)
	if !ok {
		return f.readWord(text)
	}
	if word, content, ok := f.action(object); ok {
		switch word {
		case wordAccept:
			object = content
		case wordDecline, wordCancel:
			return f.readReserved(word)
		default:
			return f.readWord(word)
		}
	}
	return f.accept(object)
}

// action returns the parts of an object of the form {"action": WORD, "content": OBJECT}. ok is false
// if the object is not of that form, or if the form has a field with the name action.
func (f *ToolForm) action(object map[string]any) (word string, content map[string]any, ok bool) {
	word, ok = object["action"].(string)
	if !ok || slices.ContainsFunc(f.fields, func(field formField) bool { return field.name == "action" }) {
		return "", nil, false
	}
	for key := range object {
		if key != "action" && key != "content" {
			return "", nil, false
		}
	}
	content, _ = object["content"].(map[string]any)
	return strings.ToLower(strings.TrimSpace(word)), content, true
}

// readWord returns what a text that is not an object says. Exact values of the only field take
// precedence over the words that answer without one.
func (f *ToolForm) readWord(text string) (*teamv1.ToolAnswer, error) {
	if f.hasValue(text) {
		return f.accept(map[string]any{f.fields[0].name: text})
	}
	return f.readReserved(text)
}

// readReserved is readWord for a text that is no exact value.
func (f *ToolForm) readReserved(text string) (*teamv1.ToolAnswer, error) {
	switch word := strings.ToLower(text); {
	case word == wordDecline:
		return &teamv1.ToolAnswer{Action: teamv1.ToolAnswer_ACTION_DECLINE}, nil
	case word == wordCancel:
		return &teamv1.ToolAnswer{Action: teamv1.ToolAnswer_ACTION_CANCEL}, nil
	case len(f.fields) == 0 && (word == wordAccept || word == f.accepted || word == "yes"):
		return f.accept(nil)
	case len(f.fields) == 0 && word == "no":
		return &teamv1.ToolAnswer{Action: teamv1.ToolAnswer_ACTION_DECLINE}, nil
	case len(f.fields) != 1 || text == "":
		return nil, fmt.Errorf("is not a valid answer; %s", f.expected())
	}
	return f.acceptBare(text)
}

// acceptBare reads the value of the only field from a text: as JSON, or else as the text itself.
func (f *ToolForm) acceptBare(text string) (*teamv1.ToolAnswer, error) {
	field := &f.fields[0]
	asText := func() (*teamv1.ToolAnswer, error) { return f.accept(map[string]any{field.name: text}) }
	word := text
	if field.Type == "boolean" {
		word = strings.ToLower(text)
		word = cmp.Or(map[string]string{"yes": "true", "no": "false"}[word], word)
	}
	v, ok := decode(word)
	if !ok || field.Type == "string" {
		return asText()
	}
	a, err := f.accept(map[string]any{field.name: v})
	if err != nil {
		if a, terr := asText(); terr == nil {
			return a, nil
		}
	}
	return a, err
}

// accept adds the defaults of the fields that are missing, and checks all of them against the schema.
func (f *ToolForm) accept(object map[string]any) (*teamv1.ToolAnswer, error) {
	content := map[string]any{}
	maps.Copy(content, object)
	for i := range f.fields {
		field := &f.fields[i]
		_, given := object[field.name]
		if v, ok := decode(string(field.Default)); ok && v != nil && !given {
			content[field.name] = v
		}
	}
	for name, v := range content {
		var ok bool
		if content[name], ok = held(v); !ok {
			return nil, fmt.Errorf("has a wrong value for the field %q: it must be a number that fits into 64 bits without losing digits", name)
		}
	}
	var invalid *jsonschema.ValidationError
	if err := f.schema.Validate(content); errors.As(err, &invalid) {
		return nil, fmt.Errorf("%s; %s", strings.Join(faults(invalid), ", and "), f.expected())
	}
	return &teamv1.ToolAnswer{Action: teamv1.ToolAnswer_ACTION_ACCEPT, Content: encode(content)}, nil
}

// faults says what is wrong with which field.
func faults(e *jsonschema.ValidationError) []string {
	var all []string
	if len(e.InstanceLocation) > 0 {
		return []string{wrong(e)}
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			all = append(all, fmt.Sprintf("has no value for the field %q, which is required", name))
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			all = append(all, fmt.Sprintf("has the field %q, which was not asked for", name))
		}
	default:
		for _, cause := range e.Causes {
			all = append(all, faults(cause)...)
		}
		if len(all) == 0 {
			all = []string{"does not match the requested schema: " + agent.Excerpt(k.LocalizedString(english), maxFault)}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// english formats the texts of the library.
var english = message.NewPrinter(language.English)

// wrong says what is wrong with the value of a field.
func wrong(e *jsonschema.ValidationError) string {
	for len(e.Causes) == 1 {
		e = e.Causes[0]
	}
	return fmt.Sprintf("has a wrong value for the field %q: %s", strings.Join(e.InstanceLocation, "."), agent.Excerpt(e.ErrorKind.LocalizedString(english), maxFault))
}

// maxFault is the number of bytes that are shown of what the library says is wrong.
const maxFault = 500

// maxDigits is the maximum number of characters of a number that is no integer of 64 bits.
const maxDigits = 100

// held returns a value with its numbers as what encodes to the same numbers: int64, uint64 or float64. ok is false if
// there is no such number.
func held(v any) (_ any, ok bool) {
	switch v := v.(type) {
	case json.Number:
		return heldNumber(v)
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			if list[i], ok = held(v[i]); !ok {
				return nil, false
			}
		}
		return list, true
	case map[string]any:
		object := make(map[string]any, len(v))
		for name := range v {
			if object[name], ok = held(v[name]); !ok {
				return nil, false
			}
		}
		return object, true
	}
	return v, true
}

func heldNumber(n json.Number) (v any, ok bool) {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return i, true
	}
	if u, err := strconv.ParseUint(n.String(), 10, 64); err == nil {
		return u, true
	}
	x, err := n.Float64()
	mantissa, _, _ := strings.Cut(strings.ToLower(n.String()), "e")
	if err != nil || len(n) > maxDigits || x == 0 && strings.ContainsAny(mantissa, "123456789") {
		return nil, false
	}
	var exact, shown big.Rat
	_, isNumber := exact.SetString(n.String())
	_, _ = shown.SetString(strconv.FormatFloat(x, 'g', -1, 64))
	return x, isNumber && exact.Cmp(&shown) == 0
}

// ToolContent returns the fields of an accepted answer. Numbers are int64, uint64 or float64.
func ToolContent(a *teamv1.ToolAnswer) map[string]any {
	v, _ := decode(a.GetContent())
	v, _ = held(v) // it was checked
	object, _ := v.(map[string]any)
	return object
}

// decode returns the value of a JSON document, with numbers as they are written. ok is false if text
// is anything else.
func decode(text string) (v any, ok bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, false
	}
	_, err := d.Token()
	return v, errors.Is(err, io.EOF)
}

// encode returns the JSON of a value, with names in alphabetical order.
func encode(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the values come from JSON
	return strings.TrimSpace(b.String())
}
