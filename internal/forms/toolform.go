package forms

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/santhosh-tekuri/jsonschema/v6"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// The words with which people answer a question of a tool without giving values.
const (
	wordAccept  = "accept"
	wordDecline = "decline"
	wordCancel  = "cancel"
	wordDone    = "done"
)

// Limits of what a tool may ask in one question.
const (
	maxFields    = 50
	maxFieldName = 100 // bytes
	maxSchema    = 64 << 10
	maxToolURL   = 2 << 10
	// maxPatterns is the number of bytes of all patterns that answers are checked against, and maxReferences the
	// number of references in a schema: both may cost much more time than they are long.
	maxPatterns   = 1 << 10
	maxReferences = 20
	// maxShown is the number of bytes of the schema of a field that people are shown.
	maxShown = 1000
)

// ToolForm describes the fields that a tool asks for.
type ToolForm struct {
	schema   *jsonschema.Schema // what an answer must match
	fields   []formField        // required ones first, each group in alphabetical order
	accepted string             // the word that accepts a question without fields
}

// formField is a field of a form.
type formField struct {
	name     string
	required bool
	schema   string // as JSON in one line
	fieldSchema
	choices []string // the texts that a text may be; nil means any
}

// fieldSchema is what is read of the schema of a field.
type fieldSchema struct {
	Type    any               `json:"type"`
	Default json.RawMessage   `json:"default"`
	Minimum json.RawMessage   `json:"minimum"`
	Enum    []json.RawMessage `json:"enum"`
	OneOf   []constant        `json:"oneOf"`
	AnyOf   []constant        `json:"anyOf"`
}

// constant is a schema of one value.
type constant struct {
	Const json.RawMessage `json:"const"`
}

// ParseToolForm returns the form of a question. The error says why people cannot be asked it.
func ParseToolForm(q *teamv1.ToolQuestion) (*ToolForm, error) {
	f := &ToolForm{accepted: wordAccept}
	if q.GetUrl() != "" {
		f.accepted = wordDone
		return f, cmp.Or(checkToolURL(q.GetUrl()), f.compile("{}"))
	}
	return f, f.parse(cmp.Or(q.GetSchema(), "{}"))
}

// checkToolURL returns an error for an address that people must not be asked to open.
func checkToolURL(address string) error {
	if len(address) > maxToolURL {
		return fmt.Errorf("the url has %d bytes; at most %d are allowed", len(address), maxToolURL)
	}
	u, err := url.Parse(address)
	if err == nil && u.User != nil {
		return errors.New("the url has a user name or password before its host, which may deceive people")
	}
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("the url is not an http or https address")
	}
	return nil
}

// parse reads the fields that a schema asks for.
func (f *ToolForm) parse(text string) error {
	if len(text) > maxSchema {
		return fmt.Errorf("the requested schema has %d bytes; at most %d are allowed", len(text), maxSchema)
	}
	var schema struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if err := json.Unmarshal([]byte(text), &schema); err != nil {
		return errors.New("the requested schema is not a JSON schema of an object")
	}
	switch {
	case schema.Type != "" && schema.Type != "object":
		return fmt.Errorf("the requested schema has the type %q; it must be object", schema.Type)
	case len(schema.Properties) > maxFields:
		return fmt.Errorf("the requested schema has %d fields; at most %d are allowed", len(schema.Properties), maxFields)
	}
	for name, raw := range schema.Properties {
		if len(name) > maxFieldName {
			return fmt.Errorf("the requested schema has a field whose name has %d bytes; at most %d are allowed", len(name), maxFieldName)
		}
		field := parseField(name, raw)
		field.required = slices.Contains(schema.Required, name)
		f.fields = append(f.fields, field)
	}
	for _, name := range schema.Required {
		if schema.Properties[name] == nil {
			return fmt.Errorf("the requested schema requires %q, which is not one of its fields", name)
		}
	}
	slices.SortFunc(f.fields, func(a, b formField) int {
		if a.required != b.required {
			return map[bool]int{true: -1, false: 1}[a.required]
		}
		return cmp.Compare(a.name, b.name)
	})
	return f.compile(text)
}

// compile reads the schema for the checks of answers, which may have no other fields.
func (f *ToolForm) compile(text string) error {
	v, _ := decode(text)
	v, ok := held(v)
	if !ok {
		return errors.New("the requested schema cannot be used to check answers: it has a number that does not fit into 64 bits without losing digits")
	}
	schema, ok := v.(map[string]any)
	if !ok {
		return errors.New("the requested schema is not a JSON schema of an object")
	}
	if _, refers := schema["$ref"]; refers {
		return errors.New("the requested schema is a reference; it must list its fields")
	}
	var w walk
	if w.schema(schema); w.references > maxReferences {
		return fmt.Errorf("the requested schema has %d references; at most %d are allowed", w.references, maxReferences)
	}
	schema["additionalProperties"] = false
	const at = "urn:form"
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // which loads nothing
	c.AssertFormat()
	err := c.AddResource(at, schema)
	if err == nil {
		f.schema, err = c.Compile(at)
	}
	if err != nil {
		return fmt.Errorf("the requested schema cannot be used to check answers: %s", agent.Excerpt(err.Error(), maxFault))
	}
	return nil
}

// walk goes through a schema, counts its references, and removes the patterns that Go cannot read, such as those with a
// lookahead, and those beyond maxPatterns. The server that asks has to check these itself.
type walk struct{ patterns, references int }

func (w *walk) schema(v any) {
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			w.schema(inner)
		}
	case map[string]any:
		if text, ok := v["pattern"].(string); ok && !w.keeps(text) {
			delete(v, "pattern")
		}
		if patterns, ok := v["patternProperties"].(map[string]any); ok {
			maps.DeleteFunc(patterns, func(pattern string, _ any) bool { return !w.keeps(pattern) })
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			w.keyword(key, v[key])
		}
	}
}

// keyword goes through the value of a keyword.
func (w *walk) keyword(key string, v any) {
	switch key {
	case "enum", "const", "default", "examples": // these are no schemas
	case "$ref", "$dynamicRef", "$recursiveRef":
		w.references++
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		named, _ := v.(map[string]any)
		for _, inner := range named {
			w.schema(inner)
		}
	default:
		w.schema(v)
	}
}

// keeps reports whether answers are checked against a pattern.
func (w *walk) keeps(pattern string) bool {
	if w.patterns+len(pattern) > maxPatterns {
		return false
	}
	w.patterns += len(pattern)
	_, err := regexp.Compile(pattern)
	return err == nil
}

// parseField reads the schema of a field, as far as it has what is known here.
func parseField(name string, raw json.RawMessage) formField {
	f := formField{name: name}
	_ = json.Unmarshal(raw, &f.fieldSchema) // what has another form is checked by compile
	var shown bytes.Buffer
	_ = json.Compact(&shown, raw) // it was decoded
	f.schema = escaped(shown.String())
	values := f.Enum
	for _, c := range slices.Concat(f.AnyOf, f.OneOf) {
		values = append(values, c.Const)
	}
	for _, value := range values {
		v, _ := decode(string(value))
		if text, ok := v.(string); ok {
			f.choices = append(f.choices, text)
		}
	}
	return f
}

// escaped returns JSON in which characters that are not shown, or change how others are shown, are escaped.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, "\\u%04x\\u%04x", high, low)
		}
	}
	return b.String()
}

// maxChoices is the maximum number of values that are offered as options of a question.
const maxChoices = 20

// Options returns answers that people can choose from. It returns nil if answers have to be written.
func (f *ToolForm) Options() []string {
	options := slices.DeleteFunc([]string{wordDecline, wordCancel}, f.hasValue)
	switch {
	case len(f.fields) == 0:
		return append([]string{f.accepted}, options...)
	case len(f.fields) > 1:
		return nil
	case f.fields[0].Type == "boolean":
		return append([]string{"true", "false"}, options...)
	case len(f.fields[0].choices) > 0 && len(f.fields[0].choices) <= maxChoices:
		return slices.Concat(f.fields[0].choices, options)
	}
	return nil
}

// hasValue reports whether a text is exactly a value that the only field may have.
func (f *ToolForm) hasValue(text string) bool {
	return len(f.fields) == 1 && slices.Contains(f.fields[0].choices, text)
}

// Quoted returns a text of a tool for people: each line begins with "> ", so that it cannot pass for
// ours, and the text is cut after n bytes, with a mark.
func Quoted(text string, n int) string {
	cut, mark := shortened(text, n)
	quoted := "> " + strings.ReplaceAll(printable(cut), "\n", "\n> ")
	if mark != "" {
		quoted += "\n" + mark
	}
	return quoted
}

// shortened returns a text of at most n bytes, and the mark of what was cut, empty if nothing was.
func shortened(text string, n int) (cut, mark string) {
	cut = agent.Excerpt(text, n)
	if len(cut) < len(text) {
		mark = fmt.Sprintf("[cut: %d more bytes]", len(text)-len(cut))
	}
	return cut, mark
}

// printable returns a text with all line ends as "\n", and without characters that change the order in
// which others are shown, or are not shown.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r', r == '\v', r == '\f', r == '\u0085', r == '\u2028', r == '\u2029':
			return '\n'
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069', r == '\u200e', r == '\u200f':
			return -1
		}
		return r
	}, strings.ReplaceAll(text, "\r\n", "\n"))
}

// Describe returns the text for people that lists the fields with their schemas and says how to answer.
func (f *ToolForm) Describe() string {
	var b strings.Builder
	for i := range f.fields {
		field := &f.fields[i]
		need := map[bool]string{true: "required", false: "optional"}[field.required]
		schema, mark := shortened(field.schema, maxShown)
		fmt.Fprintf(&b, "- %q (%s): %s\n", field.name, need, strings.TrimSpace(schema+" "+mark))
	}
	b.WriteString("A" + f.expected()[1:] + ".")
	return b.String()
}

// expected says what an answer may be: "answer with …".
func (f *ToolForm) expected() string {
	word := func(w string) string {
		if f.hasValue(w) {
			return fmt.Sprintf(`{"action": %q}`, w)
		}
		return strconv.Quote(w)
	}
	otherwise := "or " + word(wordDecline) + " or " + word(wordCancel)
	switch {
	case len(f.fields) == 0:
		return fmt.Sprintf("answer with %q, %s", f.accepted, otherwise)
	case len(f.fields) == 1:
		return fmt.Sprintf("answer with the value of %q, with a JSON object such as %s, %s", f.fields[0].name, f.sample(), otherwise)
	}
	return fmt.Sprintf("answer with a JSON object such as %s, %s", f.sample(), otherwise)
}

// sample returns an answer as an example.
func (f *ToolForm) sample() string {
	object := map[string]any{}
	for i := range f.fields {
		field := &f.fields[i]
		if field.required || len(object) == 0 {
			object[field.name] = field.example()
		}
	}
	return escaped(encode(object))
}

// example returns a value that the field may have, as far as its schema says one.
func (f *formField) example() any {
	v, ok := decode(string(f.Default))
	if (!ok || v == nil) && len(f.Enum) > 0 {
		v, ok = decode(string(f.Enum[0]))
	}
	switch {
	case ok && v != nil && len(encode(v)) <= maxFieldName:
		return v
	case len(f.choices) > 0 && len(f.choices[0]) <= maxFieldName:
		return f.choices[0]
	case f.Type == "boolean":
		return true
	case len(f.Minimum) > 0 && len(f.Minimum) <= maxFieldName:
		return f.Minimum
	case f.Type == "number", f.Type == "integer":
		return 1
	case f.Type == "array":
		return []any{}
	case f.Type == "object":
		return map[string]any{}
	}
	return "…"
}
