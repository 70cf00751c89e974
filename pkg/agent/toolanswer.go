package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
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
