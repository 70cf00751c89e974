package agent

import (
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

	"github.com/santhosh-tekuri/jsonschema/v6"

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
	schema   *jsonschema.Schema // what an answer must match
	fields   []formField        // required ones first, each group in alphabetical order
	accepted string             // the word that accepts a question without fields
}

// formField is a field of a form: a string, a number, a truth value, or a list of strings.
type formField struct {
	name     string
	required bool
	fieldSchema
	choices []choice // nil means any value
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
	f := &ToolForm{accepted: WordAccept}
	if q.GetUrl() != "" {
		f.accepted = WordDone
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
		field, err := parseField(name, raw)
		if err != nil {
			return err
		}
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
	withoutUnreadable(schema)
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
		return fmt.Errorf("the requested schema cannot be used to check answers: %s", Excerpt(err.Error(), maxDescription))
	}
	return nil
}

// withoutUnreadable removes the patterns of a schema that Go cannot read, such as those with a lookahead. The server that
// asks checks them itself.
func withoutUnreadable(v any) {
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			withoutUnreadable(inner)
		}
	case map[string]any:
		if text, ok := v["pattern"].(string); ok && !isReadable(text) {
			delete(v, "pattern")
		}
		if patterns, ok := v["patternProperties"].(map[string]any); ok {
			maps.DeleteFunc(patterns, func(pattern string, _ any) bool { return !isReadable(pattern) })
		}
		for _, inner := range v {
			withoutUnreadable(inner)
		}
	}
}

// isReadable reports whether a pattern is a regular expression of Go.
func isReadable(pattern string) bool {
	_, err := regexp.Compile(pattern)
	return err == nil
}

func parseField(name string, raw json.RawMessage) (formField, error) {
	f := formField{name: name}
	if len(name) > maxFieldName {
		return f, fmt.Errorf("the requested schema has a field whose name has %d bytes; at most %d are allowed", len(name), maxFieldName)
	}
	if err := json.Unmarshal(raw, &f.fieldSchema); err != nil {
		return f, fmt.Errorf("field %q of the requested schema is not the schema of a string, number, integer, boolean or list of strings", name)
	}
	switch f.Type {
	case "string":
		f.choices = f.listedChoices()
	case "number", "integer", "boolean":
	case "array":
		if f.Items == nil || f.Items.Type != "" && f.Items.Type != "string" {
			return f, fmt.Errorf("field %q of the requested schema is a list of something else than strings", name)
		}
		f.choices = f.Items.listedChoices()
	default:
		return f, fmt.Errorf("field %q of the requested schema has the type %q; it must be string, number, integer, boolean or array", name, f.Type)
	}
	if n := len(f.choices); n > maxValues {
		return f, fmt.Errorf("field %q of the requested schema lists %d values; at most %d are allowed", name, n, maxValues)
	}
	return f, nil
}

// listedChoices returns the values that a schema lists.
func (s *fieldSchema) listedChoices() []choice {
	var all []choice
	for i, v := range s.Enum {
		c := choice{value: v}
		if i < len(s.EnumNames) {
			c.title = s.EnumNames[i]
		}
		all = append(all, c)
	}
	for _, t := range slices.Concat(s.AnyOf, s.OneOf) {
		all = append(all, choice{t.Const, t.Title})
	}
	return all
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
	return len(f.fields) == 1 && f.fields[0].Type == "string" &&
		slices.ContainsFunc(f.fields[0].choices, func(c choice) bool { return c.value == text })
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
	for _, limit := range []struct {
		word string
		of   *json.Number
	}{{"at least", f.Minimum}, {"more than", f.ExclusiveMinimum}, {"at most", f.Maximum}, {"less than", f.ExclusiveMaximum}} {
		if limit.of != nil {
			words = append(words, limit.word+" "+limit.of.String())
		}
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
