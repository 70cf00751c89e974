package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/google/jsonschema-go/jsonschema"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// The words with which people answer a question of a tool without giving values.
const (
	WordAccept  = "accept"
	WordDecline = "decline"
	WordCancel  = "cancel"
	WordDone    = "done"
)

// Limits of what a tool may ask in one question.
const (
	maxFields    = 50
	maxValues    = 500 // that a field may have, if they are listed
	maxFieldName = 100 // bytes
	maxSchema    = 64 << 10
	maxToolURL   = 2 << 10
)

// ToolForm describes the fields that a tool asks for.
type ToolForm struct {
	schema   *jsonschema.Resolved // what an answer must match; nil without a schema
	fields   []formField          // required ones first, each group in alphabetical order
	accepted string               // the word that accepts a question without fields
}

// formField is a field of a form: a string, a number, a truth value, or a list of strings.
type formField struct {
	name     string
	required bool
	fieldSchema
	choices []choice // nil means any value
	pattern *regexp.Regexp
}

// choice is a value that a field may have, and how it is shown.
type choice struct{ value, title string }

// fieldSchema is the part of a JSON schema that the fields of MCP elicitation may have.
type fieldSchema struct {
	Type             string          `json:"type"`
	Title            string          `json:"title"`
	Description      string          `json:"description"`
	Default          json.RawMessage `json:"default"`
	MinLength        *int            `json:"minLength"`
	MaxLength        *int            `json:"maxLength"`
	Pattern          string          `json:"pattern"`
	Format           string          `json:"format"`
	Minimum          *json.Number    `json:"minimum"`
	Maximum          *json.Number    `json:"maximum"`
	ExclusiveMinimum *json.Number    `json:"exclusiveMinimum"`
	ExclusiveMaximum *json.Number    `json:"exclusiveMaximum"`
	MinItems         *int            `json:"minItems"`
	MaxItems         *int            `json:"maxItems"`
	Items            *fieldSchema    `json:"items"`
	Enum             []string        `json:"enum"`
	EnumNames        []string        `json:"enumNames"`
	OneOf            []titledValue   `json:"oneOf"`
	AnyOf            []titledValue   `json:"anyOf"`
}

// titledValue is a value with the title that people see.
type titledValue struct {
	Const string `json:"const"`
	Title string `json:"title"`
}

// ParseToolForm returns the form of a question. The error says why people cannot be asked it.
func ParseToolForm(q *teamv1.ToolQuestion) (*ToolForm, error) {
	if q.GetUrl() != "" {
		if len(q.GetUrl()) > maxToolURL {
			return nil, fmt.Errorf("the url has %d bytes; at most %d are allowed", len(q.GetUrl()), maxToolURL)
		}
		u, err := url.Parse(q.GetUrl())
		if err == nil && u.User != nil {
			return nil, errors.New("the url has a user name or password before its host, which may deceive people")
		}
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return nil, errors.New("the url is not an http or https address")
		}
		return &ToolForm{accepted: WordDone}, nil
	}
	f := &ToolForm{accepted: WordAccept}
	if q.GetSchema() == "" {
		return f, nil
	}
	if len(q.GetSchema()) > maxSchema {
		return nil, fmt.Errorf("the requested schema has %d bytes; at most %d are allowed", len(q.GetSchema()), maxSchema)
	}
	var schema struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if err := json.Unmarshal([]byte(q.GetSchema()), &schema); err != nil {
		return nil, errors.New("the requested schema is not a JSON schema of an object")
	}
	switch {
	case schema.Type != "" && schema.Type != "object":
		return nil, fmt.Errorf("the requested schema has the type %q; it must be object", schema.Type)
	case len(schema.Properties) > maxFields:
		return nil, fmt.Errorf("the requested schema has %d fields; at most %d are allowed", len(schema.Properties), maxFields)
	}
	if err := f.resolve(q.GetSchema()); err != nil {
		return nil, err
	}
	for name, raw := range schema.Properties {
		field, err := parseField(name, raw)
		if err != nil {
			return nil, err
		}
		field.required = slices.Contains(schema.Required, name)
		f.fields = append(f.fields, field)
	}
	for _, name := range schema.Required {
		if schema.Properties[name] == nil {
			return nil, fmt.Errorf("the requested schema requires %q, which is not one of its fields", name)
		}
	}
	slices.SortFunc(f.fields, func(a, b formField) int {
		if a.required != b.required {
			return map[bool]int{true: -1, false: 1}[a.required]
		}
		return cmp.Compare(a.name, b.name)
	})
	return f, nil
}

// resolve reads the schema with the library that checks the answers once more before they are sent.
func (f *ToolForm) resolve(text string) error {
	schema := &jsonschema.Schema{}
	err := json.Unmarshal([]byte(text), schema)
	if err == nil {
		f.schema, err = schema.Resolve(&jsonschema.ResolveOptions{})
	}
	if err != nil {
		return fmt.Errorf("the requested schema cannot be used to check answers: %s", Excerpt(err.Error(), maxDescription))
	}
	return nil
}

func parseField(name string, raw json.RawMessage) (formField, error) {
	f := formField{name: name}
	if len(name) > maxFieldName {
		return f, fmt.Errorf("the requested schema has a field whose name has %d bytes; at most %d are allowed", len(name), maxFieldName)
	}
	if err := json.Unmarshal(raw, &f.fieldSchema); err != nil {
		return f, fmt.Errorf("field %q of the requested schema is not the schema of a string, number, integer, boolean or list of strings", name)
	}
	values, names, titled := f.Enum, f.EnumNames, f.OneOf
	switch f.Type {
	case "string":
	case "number", "integer", "boolean":
		values, titled = nil, nil
	case "array":
		if f.Items == nil || f.Items.Type != "" && f.Items.Type != "string" {
			return f, fmt.Errorf("field %q of the requested schema is a list of something else than strings", name)
		}
		values, names, titled = f.Items.Enum, f.Items.EnumNames, slices.Concat(f.Items.AnyOf, f.Items.OneOf)
	default:
		return f, fmt.Errorf("field %q of the requested schema has the type %q; it must be string, number, integer, boolean or array", name, f.Type)
	}
	if n := len(values) + len(titled); n > maxValues {
		return f, fmt.Errorf("field %q of the requested schema lists %d values; at most %d are allowed", name, n, maxValues)
	}
	for i, v := range values {
		c := choice{value: v}
		if i < len(names) {
			c.title = names[i]
		}
		f.choices = append(f.choices, c)
	}
	for _, t := range titled {
		f.choices = append(f.choices, choice{t.Const, t.Title})
	}
	if f.Pattern != "" {
		f.pattern, _ = regexp.Compile(f.Pattern) // a pattern of another dialect is checked by the tool alone
	}
	return f, nil
}

// maxChoices is the maximum number of values that are offered as options of a question.
const maxChoices = 20

// Options returns answers that people can choose from. It returns nil if answers have to be written.
func (f *ToolForm) Options() []string {
	options := slices.DeleteFunc([]string{WordDecline, WordCancel}, f.hasValue)
	switch {
	case len(f.fields) == 0:
		return append([]string{f.accepted}, options...)
	case len(f.fields) > 1:
		return nil
	case f.fields[0].Type == "boolean":
		return append([]string{"true", "false"}, options...)
	case f.fields[0].Type == "string" && len(f.fields[0].choices) > 0 && len(f.fields[0].choices) <= maxChoices:
		var values []string
		for _, c := range f.fields[0].choices {
			values = append(values, c.value)
		}
		return append(values, options...)
	}
	return nil
}

// hasValue reports whether a text is exactly a value that the only field may have.
func (f *ToolForm) hasValue(text string) bool {
	return len(f.fields) == 1 && f.fields[0].Type == "string" && f.fields[0].lists(text)
}

// lists reports whether v is one of the values that a field may have.
func (f *formField) lists(v string) bool {
	return slices.ContainsFunc(f.choices, func(c choice) bool { return c.value == v })
}

// Quoted returns a text of a tool for people: each line begins with "> ", so that it cannot pass for
// ours, and the text is cut after n bytes, with a mark.
func Quoted(text string, n int) string {
	cut := Excerpt(text, n)
	quoted := "> " + strings.ReplaceAll(printable(cut), "\n", "\n> ")
	if len(cut) < len(text) {
		quoted += fmt.Sprintf("\n[cut: %d more bytes]", len(text)-len(cut))
	}
	return quoted
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

// Describe returns the text for people that lists the fields and says how to answer.
func (f *ToolForm) Describe() string {
	var b strings.Builder
	for i := range f.fields {
		field := &f.fields[i]
		fmt.Fprintf(&b, "- %q (%s)", field.name, field.kind())
		if text := cmp.Or(field.Description, field.Title); text != "" {
			cut := Excerpt(text, maxDescription)
			b.WriteString(": " + strconv.Quote(cut))
			if len(cut) < len(text) {
				fmt.Fprintf(&b, " [cut: %d more bytes]", len(text)-len(cut))
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("A" + f.expected()[1:] + ".")
	return b.String()
}

// maxDescription is the maximum number of bytes of the description of a field in a question.
const maxDescription = 500

// expected says what an answer may be: "answer with …".
func (f *ToolForm) expected() string {
	word := func(w string) string {
		if f.hasValue(w) {
			return fmt.Sprintf(`{"action": %q}`, w)
		}
		return strconv.Quote(w)
	}
	otherwise := "or " + word(WordDecline) + " or " + word(WordCancel)
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
		if !field.required && len(object) > 0 {
			continue
		}
		switch {
		case field.Type == "boolean":
			object[field.name] = true
		case field.Type == "array" && len(field.choices) > 0:
			object[field.name] = []string{field.choices[0].value}
		case field.Type == "array":
			object[field.name] = []string{"…"}
		case field.Type != "string":
			object[field.name] = json.Number("1")
			if field.Minimum != nil {
				object[field.name] = *field.Minimum
			}
		case len(field.choices) > 0:
			object[field.name] = field.choices[0].value
		default:
			object[field.name] = "…"
		}
	}
	return encode(object)
}

// kind describes the values of a field.
func (f *formField) kind() string {
	var words []string
	switch f.Type {
	case "boolean":
		words = append(words, "true or false")
	case "array":
		words = append(words, "list of strings")
	case "string":
		words = append(words, cmp.Or(map[string]string{"email": "email address", "uri": "URI", "date": "date such as 2026-01-31", "date-time": "time such as 2026-01-31T09:30:00Z"}[f.Format], "text"))
	default:
		words = append(words, f.Type)
	}
	if len(f.choices) > 0 {
		words = append(words, f.listed())
	}
	bounds := func(what string, least, most *int) {
		if least != nil && *least > 0 {
			words = append(words, "at least "+counted(*least, what))
		}
		if most != nil {
			words = append(words, "at most "+counted(*most, what))
		}
	}
	bounds("character", f.MinLength, f.MaxLength)
	bounds("entry", f.MinItems, f.MaxItems)
	for _, l := range f.limits() {
		words = append(words, l.text())
	}
	if f.Default != nil && string(f.Default) != "null" {
		words = append(words, "default "+f.shownDefault())
	}
	if f.required {
		words = append(words, "required")
	} else {
		words = append(words, "optional")
	}
	return strings.Join(words, ", ")
}

// shownDefault returns the default value as JSON in one line.
func (f *formField) shownDefault() string {
	v, _ := decode(string(f.Default))
	text, err := json.Marshal(v)
	if cut := Excerpt(string(text), maxDescription); err == nil && len(cut) < len(text) {
		return cut + fmt.Sprintf(" [cut: %d more bytes]", len(text)-len(cut))
	}
	return string(text)
}

// counted returns a number of characters or entries.
func counted(n int, what string) string {
	if n != 1 {
		what = map[string]string{"character": "characters", "entry": "entries"}[what]
	}
	return fmt.Sprintf("%d %s", n, what)
}

// listed names the values that a field may have.
func (f *formField) listed() string {
	names := make([]string, len(f.choices))
	for i, c := range f.choices {
		names[i] = strconv.Quote(c.value)
		if c.title != "" && c.title != c.value {
			names[i] += " (" + strconv.Quote(c.title) + ")"
		}
	}
	return "one of " + strings.Join(names, ", ")
}

// limit is a bound of a number.
type limit struct {
	bound *json.Number
	word  string
	holds func(cmp int) bool
}

func (l *limit) text() string { return l.word + " " + l.bound.String() }

// limits returns the bounds of a number that are set.
func (f *formField) limits() []limit {
	all := []limit{
		{f.Minimum, "at least", func(c int) bool { return c >= 0 }}, {f.ExclusiveMinimum, "more than", func(c int) bool { return c > 0 }},
		{f.Maximum, "at most", func(c int) bool { return c <= 0 }}, {f.ExclusiveMaximum, "less than", func(c int) bool { return c < 0 }},
	}
	return slices.DeleteFunc(all, func(l limit) bool { return l.bound == nil })
}
