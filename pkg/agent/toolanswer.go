package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
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
	var object map[string]any
	text = strings.TrimSpace(text)
	switch value, isJSON := decode(text); {
	case data != nil:
		object, _ = data.(map[string]any)
		if object == nil {
			return nil, fmt.Errorf("is not an object; %s", f.expected())
		}
	case isJSON && isObject(value):
		object, _ = value.(map[string]any)
	default:
		return f.readWord(text)
	}
	if word, content, ok := f.action(object); ok {
		switch word {
		case WordAccept:
			object = content
		case WordDecline, WordCancel:
			return f.readReserved(word)
		default:
			return f.readWord(word)
		}
	}
	return f.accept(object)
}

func isObject(v any) bool { _, ok := v.(map[string]any); return ok }

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
	case word == WordDecline:
		return &teamv1.ToolAnswer{Action: teamv1.ToolAnswer_ACTION_DECLINE}, nil
	case word == WordCancel:
		return &teamv1.ToolAnswer{Action: teamv1.ToolAnswer_ACTION_CANCEL}, nil
	case len(f.fields) == 0 && (word == WordAccept || word == f.accepted || word == "yes"):
		return f.accept(nil)
	case len(f.fields) == 0 && word == "no":
		return &teamv1.ToolAnswer{Action: teamv1.ToolAnswer_ACTION_DECLINE}, nil
	case len(f.fields) != 1 || text == "":
		return nil, fmt.Errorf("is not a valid answer; %s", f.expected())
	}
	v, err := f.fields[0].fromText(text)
	if err != nil {
		return nil, err
	}
	return f.accept(map[string]any{f.fields[0].name: v})
}

// fromText returns the value that a text means.
func (f *formField) fromText(text string) (any, error) {
	switch f.Type {
	case "string":
		for _, c := range f.choices { // exact values have been read
			if strings.EqualFold(text, c.title) && c.title != "" {
				return c.value, nil
			}
		}
		return text, nil
	case "boolean":
		switch strings.ToLower(text) {
		case "yes", "true":
			return true, nil
		case "no", "false":
			return false, nil
		}
		return nil, f.fault("must be true or false")
	case "array":
		if v, ok := decode(text); ok {
			return v, nil
		}
		var list []any
		for entry := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(entry))
		}
		return list, nil
	}
	if v, ok := decode(text); ok {
		return v, nil
	}
	return text, nil
}

func (f *formField) fault(format string, args ...any) error {
	return fmt.Errorf("has a wrong value for the field %q: it "+format, append([]any{f.name}, args...)...)
}

// accept checks the fields, and adds the defaults of those that are missing.
func (f *ToolForm) accept(object map[string]any) (*teamv1.ToolAnswer, error) {
	for name := range object {
		if !slices.ContainsFunc(f.fields, func(field formField) bool { return field.name == name }) {
			return nil, fmt.Errorf("has the field %q, which was not asked for; %s", name, f.expected())
		}
	}
	content := map[string]any{}
	for i := range f.fields {
		field := &f.fields[i]
		v, ok := object[field.name]
		if !ok && field.Default != nil {
			v, ok = decode(string(field.Default))
			ok = ok && v != nil
		}
		switch {
		case ok:
			if err := field.check(v); err != nil {
				return nil, err
			}
			content[field.name] = v
		case field.required:
			return nil, fmt.Errorf("has no value for the field %q, which is required; %s", field.name, f.expected())
		}
	}
	if f.schema != nil {
		if err := f.schema.Validate(heldFields(content)); err != nil {
			return nil, fmt.Errorf("does not match the requested schema: %s", Excerpt(err.Error(), maxDescription))
		}
	}
	return &teamv1.ToolAnswer{Action: teamv1.ToolAnswer_ACTION_ACCEPT, Content: encode(content)}, nil
}

// check returns an error that names the field if it may not have the value v.
func (f *formField) check(v any) error {
	switch f.Type {
	case "boolean":
		if _, ok := v.(bool); !ok {
			return f.fault("must be true or false")
		}
		return nil
	case "array":
		return f.checkList(v)
	case "string":
		s, ok := v.(string)
		if !ok {
			return f.fault("must be a text")
		}
		return f.checkText(s)
	}
	return f.checkNumber(v)
}

func (f *formField) checkText(s string) error {
	n := utf8.RuneCountInString(s)
	switch {
	case len(f.choices) > 0 && !f.lists(s):
		return f.fault("must be %s", f.listed())
	case f.MinLength != nil && n < *f.MinLength:
		return f.fault("must have at least %s", counted(*f.MinLength, "character"))
	case f.MaxLength != nil && n > *f.MaxLength:
		return f.fault("must have at most %s", counted(*f.MaxLength, "character"))
	case f.pattern != nil && !f.pattern.MatchString(s):
		return f.fault("must match the pattern %s", f.Pattern)
	}
	switch f.Format {
	case "email":
		if a, err := mail.ParseAddress(s); err != nil || a.Address != s {
			return f.fault("must be an email address")
		}
	case "uri":
		if u, err := url.Parse(s); err != nil || u.Scheme == "" {
			return f.fault("must be a URI, such as https://example.com/")
		}
	case "date":
		if _, err := time.Parse(time.DateOnly, s); err != nil {
			return f.fault("must be a date, such as 2026-01-31")
		}
	case "date-time":
		if _, err := time.Parse(time.RFC3339, s); err != nil {
			return f.fault("must be a time, such as 2026-01-31T09:30:00Z")
		}
	}
	return nil
}

func (f *formField) checkNumber(v any) error {
	var n big.Float
	switch v := v.(type) {
	case json.Number:
		if _, ok := held(v); !ok {
			return f.fault("must be a number that fits into 64 bits without losing digits")
		}
		if _, ok := n.SetString(v.String()); !ok {
			return f.fault("must be a number")
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return f.fault("must be a number")
		}
		n.SetFloat64(v)
	default:
		return f.fault("must be a number")
	}
	if f.Type == "integer" && !n.IsInt() {
		return f.fault("must be a whole number")
	}
	for _, l := range f.limits() {
		var bound big.Float
		if _, ok := bound.SetString(l.bound.String()); ok && !l.holds(n.Cmp(&bound)) {
			return f.fault("must be %s", l.text())
		}
	}
	return nil
}

// maxDigits is the maximum number of characters of a number that is no integer of 64 bits.
const maxDigits = 100

// held returns a number as a value that encodes to the same number: an int64, uint64 or float64. ok is
// false if there is none.
func held(n json.Number) (v any, ok bool) {
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
	object, _ := v.(map[string]any)
	return heldFields(object)
}

// heldFields returns an object with its numbers as held returns them.
func heldFields(object map[string]any) map[string]any {
	c := make(map[string]any, len(object))
	for name, v := range object {
		if n, ok := v.(json.Number); ok {
			v, _ = held(n) // the field was checked
		}
		c[name] = v
	}
	return c
}

func (f *formField) checkList(v any) error {
	list, ok := v.([]any)
	switch {
	case !ok:
		return f.fault("must be a list of strings")
	case f.MinItems != nil && len(list) < *f.MinItems:
		return f.fault("must have at least %s", counted(*f.MinItems, "entry"))
	case f.MaxItems != nil && len(list) > *f.MaxItems:
		return f.fault("must have at most %s", counted(*f.MaxItems, "entry"))
	}
	for _, entry := range list {
		s, ok := entry.(string)
		switch {
		case !ok:
			return f.fault("must be a list of strings")
		case len(f.choices) > 0 && !f.lists(s):
			return f.fault("must have only entries that are %s", f.listed())
		}
	}
	return nil
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

// encode returns the JSON of an object, with names in alphabetical order.
func encode(object map[string]any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(object) // the values come from JSON
	return strings.TrimSpace(b.String())
}
