package guard

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

func message(parts ...any) *a2av1.Message {
	m := &a2av1.Message{}
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			m.Parts = append(m.Parts, agent.TextParts(p)...)
		case *structpb.Value:
			m.Parts = append(m.Parts, &a2av1.Part{Content: &a2av1.Part_Data{Data: p}})
		case *a2av1.Part:
			m.Parts = append(m.Parts, p)
		}
	}
	return m
}

func data(t testing.TB, text string) *structpb.Value {
	t.Helper()
	v := &structpb.Value{}
	if err := v.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return v
}

func schema(t testing.TB, text string) *Schema {
	t.Helper()
	s, err := ParseSchema("s.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestR_002_9_3_Guardrails(t *testing.T) {
	score := `{"type": "object", "required": ["score"], "properties": {"score": {"type": "integer", "maximum": 10}}, "additionalProperties": false}`
	for _, c := range []struct {
		name    string
		guard   Config
		message *a2av1.Message
		says    string // empty: it passes
	}{
		{"just short enough", Config{MaxLength: 5}, message("äöü日本"), ""},
		{"one character too long", Config{MaxLength: 4}, message("äöü日本"), "it has 5 characters, more than the 4 allowed; shorten it"},
		{"two parts count together, with what joins them", Config{MaxLength: 4}, message("ab", "cd"), "it has 5 characters"},
		{"data counts", Config{MaxLength: 4}, message(data(t, `{"a": "b"}`)), "it has 9 characters"},
		{"nothing denied", Config{Deny: `(?i)secret`}, message("hello"), ""},
		{"denied", Config{Deny: `(?i)secret`}, message("a SECRET"), "it matches a denied pattern; remove it"},
		{"denied in data", Config{Deny: `secret`}, message("hello", data(t, `{"a": ["x", "the secret"]}`)), "it matches a denied pattern"},
		{"denied in a key of data", Config{Deny: `secret`}, message(data(t, `{"secret": 1}`)), "it matches a denied pattern"},
		{"denied in the name of a file", Config{Deny: `secret`}, message(&a2av1.Part{Content: &a2av1.Part_Raw{Raw: []byte("x")}, Filename: "secret.txt"}), "it matches a denied pattern"},
		{"denied characters are not escaped in data", Config{Deny: `<script>`}, message(data(t, `"<script>"`)), "it matches a denied pattern"},
		{"required and there", Config{Require: `^Ticket \d+`}, message("Ticket 17: help"), ""},
		{"required", Config{Require: `^Ticket \d+`}, message("help"), "it does not match the required pattern; add what is missing"},
		{"own words", Config{Require: "x", Message: "name your ticket"}, message("help"), "name your ticket"},
		{"fits as data", Config{Schema: schema(t, score)}, message("see below", data(t, `{"score": 7}`)), ""},
		{"fits as text", Config{Schema: schema(t, score)}, message(`{"score": 7}`), ""},
		{"no data", Config{Schema: schema(t, score)}, message("seven"), "it contains no JSON data; add some"},
		{"numbers that JSON does not have", Config{Schema: schema(t, score)}, message(structpb.NewNumberValue(math.NaN())), "its data violates the schema at the top (type)"},
		{
			"does not fit, and nothing of it is told", Config{Schema: schema(t, score)}, message(`{"score": 11, "password": "hunter2"}`),
			"its data violates the schema at the top (additionalProperties), at /score (maximum); correct it",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := New(c.guard)
			if err != nil {
				t.Fatal(err)
			}
			if !g.Pure || g.OnFailure != agent.Abort {
				t.Error("it is pure, and nothing passes when it crashes")
			}
			v, err := g.Middleware.Check(t.Context(), &agent.Passing{Message: c.message})
			if err != nil || v.Message != nil || !strings.HasPrefix(v.Block, c.says) || c.says == "" && v.Block != "" {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

// TestR_002_9_3_History looks for what is denied also in what a member is shown
// besides; a length, and what is required, are the message's own.
func TestR_002_9_3_History(t *testing.T) {
	for _, c := range []struct {
		guard Config
		stops bool
	}{{Config{Deny: "secret"}, true}, {Config{MaxLength: 5}, false}, {Config{Require: "^task"}, false}} {
		g, err := New(c.guard)
		if err != nil {
			t.Fatal(err)
		}
		v, err := g.Middleware.Check(t.Context(), &agent.Passing{Message: message("task"), History: []*a2av1.Message{message("hello"), message("the secret")}})
		if err != nil || (v.Block != "") != c.stops {
			t.Errorf("%+v: %+v, %v", c.guard, v, err)
		}
	}
}

func TestNew_Faults(t *testing.T) {
	for name, c := range map[string]Config{
		"exactly one":      {},
		"exactly one of":   {MaxLength: 1, Deny: "x"},
		"more than 0":      {MaxLength: -1},
		"deny: error":      {Deny: "("},
		"missing closing ": {Require: "("},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for kind, c := range map[string]Config{
		"max_length": {MaxLength: 1}, "deny": {Deny: "x"}, "require": {Require: "x"}, "schema": {Schema: schema(t, "{}")}, "own": {Name: "own", Deny: "x"},
	} {
		if g, err := New(c); err != nil || g.Middleware.Name() != kind {
			t.Errorf("%s: %v %v", kind, g, err)
		}
	}
}

func TestSchema_Fit(t *testing.T) {
	s := schema(t, `{
		"$defs": {"price": {"type": "number", "minimum": 0}},
		"type": "object", "required": ["title", "items"], "additionalProperties": false,
		"properties": {
			"title": {"type": "string", "minLength": 3},
			"items": {"type": "array", "items": {"type": "object", "required": ["price"], "properties": {"price": {"$ref": "#/$defs/price"}}}},
			"kind": {"enum": ["a", "b"]},
			"any": {"anyOf": [{"type": "null"}, {"type": "string"}]}
		}
	}`)
	for _, c := range []struct{ name, text, want string }{
		{"fits", `{"title": "Tides", "items": [{"price": 1}], "any": null}`, ""},
		{"fits in a block of code", "```json\n{\"title\": \"Tides\", \"items\": []}\n```", ""},
		{"text around it", "Here: {\"title\": \"Tides\", \"items\": []}, and {\"title\": 1}.", ""},
		{"no JSON", "Here: nothing.", "the answer contains no JSON"},
		{
			"all that is wrong, in order", `{"title": "T", "items": [{"price": 1}, {"price": -1}, {}], "kind": "c", "more": 1, "any": 1}`,
			`at the top "more" is not expected, at /any does not fit (anyOf): no alternative matches, at /items/1/price does not fit (minimum): -1 is less than 0, ` +
				`at /items/2 "price" is missing, at /kind does not fit (enum): want one of ["a","b"], ` +
				`at /title does not fit (minLength): 1 characters, fewer than 3`,
		},
		{"another type", `[]`, `at the top does not fit (type): got array, want object`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 20 {
				v, err := s.Fit(message(c.text))
				switch {
				case c.want == "" && (err != nil || v.GetStructValue() == nil):
					t.Fatal(v, err)
				case c.want != "" && (err == nil || err.Error() != c.want):
					t.Fatalf("%v\nwant %s", err, c.want)
				}
			}
		})
	}
	if _, err := s.Fit(message(`{"title": "` + strings.Repeat("x", 3) + `", "items": "` + strings.Repeat("y", 5000) + `"}`)); err == nil || len(err.Error()) > 400 {
		t.Error("the message comes back whole: ", err)
	}
}

func TestParseSchema_Faults(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no JSON", "{\n  \"type\": }", "s.json:2:11  the file is not valid JSON"},
		{"cut off", `{"type": "object"`, "s.json:1:18  the file is not valid JSON: it ends too early"},
		{"empty", ``, "s.json:1:1  the file is not valid JSON: it ends too early"},
		{"two values", "{}\n{}", "s.json:2:1  unexpected text after the schema"},
		{"no object", `[]`, "s.json:1:1  a schema file must contain an object, got an array"},
		{"no UTF-8", "{\"a\xff\": 1}", "s.json:1:1  the file is not UTF-8 text"},
		{"a key twice", `{"type": "object", "type": "string"}`, `s.json:1:20  key "type" is set twice`},
		{"no type", "{\n\t\"properties\": {\"ä\": {\"type\": \"text\"}}\n}", "s.json:2:31  unknown type (types are array,"},
		{"no schema", `{"properties": {"a": 1}}`, "s.json:1:22  expected a schema, got a number"},
		{"no map", `{"properties": []}`, "s.json:1:16  properties must be an object, got an array"},
		{"no list", `{"allOf": {}}`, "s.json:1:11  allOf must be an array, got an object"},
		{"no names", `{"required": [1]}`, "s.json:1:15  a name in this array must be a string, got a number"},
		{"no count", `{"minLength": -1}`, "s.json:1:15  minLength must be a whole number"},
		{"multiple of nothing", `{"multipleOf": 0}`, "s.json:1:16  multipleOf must be more than 0"},
		{"expression", `{"pattern": "("}`, "s.json:1:13  error parsing regexp: missing closing )"},
		{"expression as key", `{"patternProperties": {"(": true}}`, "s.json:1:24  error parsing regexp"},
		{"other draft", `{"$schema": "http://json-schema.org/draft-04/schema#"}`, "s.json:1:13  this version of JSON Schema is not supported"},
		{"typo in capitals", `{"Type": "object"}`, `s.json:1:2  unknown keyword "Type" (did you mean "type"?)`},
		{"folded", `{"propertieſ": {}}`, `unknown keyword`},
		{"another file", `{"$ref": "other.json"}`, "s.json:1:10  this file has no schema other.json (write #/$defs/NAME"},
		{"nowhere", `{"$ref": "#/$defs/a"}`, "s.json:1:10  this file has no schema #/$defs/a"},
		{"no schema there", `{"$ref": "#/$defs/a/enum", "$defs": {"a": {"enum": [1]}}}`, "this file has no schema #/$defs/a/enum"},
		{"itself", `{"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}`, "s.json:1:58  #/$defs/a leads back here (a schema that contains itself"},
		{"itself, deeper in the data", `{"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": {"items": {"$ref": "#/$defs/a"}}}}}}`, "leads back here"},
		{"dynamic", `{"$dynamicRef": "#a"}`, "$dynamicRef is not supported"},
		{"id inside", `{"properties": {"a": {"$id": "x"}}}`, "$id within a schema is not supported"},
		{"list of items", `{"items": [{}]}`, "items must not be an array in this version"},
		{"of the old draft", `{"dependencies": {"a": ["b"]}}`, "dependencies is only supported in draft-07"},
		{"too deep", strings.Repeat(`{"not": `, 200) + "{}" + strings.Repeat("}", 200), "the schema is nested more than 100 levels deep"},
		{"too large", `{"title": "` + strings.Repeat("x", maxSchema) + `"}`, "a schema has at most 262144"},
		{"a name twice", `{"required": ["a", "a"]}`, "s.json:1:14  does not fit (uniqueItems): items at 0 and 1 are equal (correct the schema)"},
		{"no alternatives", `{"properties": {"a": {"allOf": []}}}`, "s.json:1:32  does not fit (minItems): 0 items, fewer than 1"},
		{"an anchor twice", `{"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}}`, "s.json:1:1  not a valid JSON Schema: duplicate anchor"},
		{"another host", `{"$ref": "http://127.0.0.1:1/a"}`, "s.json:1:10  this file has no schema http://127.0.0.1:1/a"},
		{"two", `{"minLength": "a", "maxLength": "b"}`, "s.json:1:15  minLength must be a number, got a string\ns.json:1:33"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ParseSchema("s.json", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
	for name, text := range map[string]string{
		"draft-07":     `{"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}], "definitions": {"a": {}}, "dependencies": {"a": ["b"], "c": {}}}`,
		"an id":        `{"$id": "https://example.com/s.json", "$defs": {"a": {}}, "$ref": "#/$defs/a"}`,
		"annotations":  `{"x-mine": 1, "title": "T", "default": {"$ref": "#"}, "examples": [{"Type": 1}]}`,
		"a list of $r": `{"properties": {"$ref": {"type": "string"}}}`,
	} {
		if _, err := ParseSchema("s.json", []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSchema_Growth doubles what a schema refers to until looking at one value
// would take too long.
func TestSchema_Growth(t *testing.T) {
	defs := map[string]any{"d0": map[string]any{"type": "string"}}
	last := ""
	for i := 1; i <= 20; i++ {
		ref := map[string]any{"$ref": "#/$defs/d" + string(rune('a'+i-2))}
		if i == 1 {
			ref = map[string]any{"$ref": "#/$defs/d0"}
		}
		last = "d" + string(rune('a'+i-1))
		defs[last] = map[string]any{"allOf": []any{ref, ref}}
	}
	b, err := json.Marshal(map[string]any{"$defs": defs, "$ref": "#/$defs/" + last})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseSchema("s.json", b); err == nil || !strings.Contains(err.Error(), "evaluates more than 5000 schemas") {
		t.Error(err)
	}
}

// FuzzP17_Schema has any file be a schema, and any text be an answer that is to fit
// it: nothing crashes or takes long, and the same is always said.
func FuzzP17_Schema(f *testing.F) {
	f.Add(`{"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"anyOf": [{"type": "null"}, {"minimum": 3}]}}}`, `{"a": 2}`)
	f.Add(`{"allOf": [{"required": ["a"]}, {"patternProperties": {"^b": {"type": "string"}}}], "unevaluatedProperties": false}`, `{"b": 1, "bc": 2}`)
	f.Add(`{"items": {"enum": [1, null]}, "uniqueItems": true, "contains": {"const": 1}}`, "```json\n[1, 1]\n```")
	f.Add(`{"if": {"type": "string"}, "then": {"pattern": "^x"}, "else": {"not": {}}}`, `"y"`)
	f.Fuzz(func(t *testing.T, file, answer string) {
		s, err := ParseSchema("s.json", []byte(file))
		if err != nil {
			return
		}
		m := message(answer)
		v, first := s.Fit(m)
		for range 3 {
			again, err := s.Fit(m)
			if (err == nil) != (first == nil) || err != nil && err.Error() != first.Error() || again.String() != v.String() {
				t.Fatalf("%v, then %v", first, err)
			}
		}
		if first == nil && s.describeViolations(&a2av1.Message{Parts: []*a2av1.Part{{Content: &a2av1.Part_Data{Data: v}}}}) != "" {
			t.Fatal("it fits as text, and not as data")
		}
	})
}

// FuzzP17_Guardrails has messages of any kind pass guardrails of all kinds.
func FuzzP17_Guardrails(f *testing.F) {
	f.Add("hello", `{"a": [1, "x"]}`, "file.txt")
	f.Add("", `null`, "")
	long, err := New(Config{MaxLength: 10})
	if err != nil {
		f.Fatal(err)
	}
	deny, err := New(Config{Deny: `(a+)+$`})
	if err != nil {
		f.Fatal(err)
	}
	fits, err := New(Config{Schema: schema(f, `{"type": ["object", "null"], "additionalProperties": {"type": "array"}}`)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, value, name string) {
		m := message(text, &a2av1.Part{Content: &a2av1.Part_Url{Url: name}, Filename: name})
		v := &structpb.Value{}
		if v.UnmarshalJSON([]byte(value)) == nil {
			m = message(m.GetParts()[0], m.GetParts()[1], v)
		}
		for _, g := range []agent.Guard{long, deny, fits} {
			first, err := g.Middleware.Check(t.Context(), &agent.Passing{Message: m})
			if err != nil {
				t.Fatal(err)
			}
			if again, err := g.Middleware.Check(t.Context(), &agent.Passing{Message: m}); err != nil || again.Block != first.Block {
				t.Fatal(first, again, err)
			}
		}
	})
}
