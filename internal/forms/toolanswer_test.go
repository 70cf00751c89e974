package forms_test

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/forms"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	oneSchema  = `{"type":"object","properties":{"n":{"type":"integer","minimum":1,"maximum":9}},"required":["n"]}`
	manySchema = `{"type":"object","properties":{
		"name":{"type":"string","minLength":2,"maxLength":5,"description":"Your name."},
		"mail":{"type":"string","format":"email"},
		"day":{"type":"string","format":"date"},
		"at":{"type":"string","format":"date-time"},
		"site":{"type":"string","format":"uri"},
		"code":{"type":"string","pattern":"^[A-Z]+$"},
		"color":{"type":"string","enum":["r","g"],"enumNames":["Red","Green"]},
		"size":{"type":"string","oneOf":[{"const":"s","title":"Small"},{"const":"l","title":"Large"}]},
		"tags":{"type":"array","minItems":1,"maxItems":2,"items":{"type":"string","enum":["x","y","z"]}},
		"more":{"type":"array","items":{"anyOf":[{"const":"p","title":"P"}]}},
		"price":{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":10},
		"sure":{"type":"boolean","default":true}},
		"required":["name"]}`
	colorSchema = `{"type":"object","properties":{"color":{"type":"string","oneOf":[{"const":"r","title":"Red"},{"const":"g","title":"Green"}]}},"required":["color"]}`
	sureSchema  = `{"type":"object","properties":{"sure":{"type":"boolean"}}}`
	listSchema  = `{"type":"object","properties":{"tags":{"type":"array","items":{"type":"string"}}}}`
	wordsSchema = `{"type":"object","properties":{"what":{"type":"string","enum":["keep","cancel","Keep"],"enumNames":["cancel","Stop","keep"]}},"required":["what"]}`
	bigSchema   = `{"type":"object","properties":{"n":{"type":"number"}}}`
	textSchema  = `{"type":"object","properties":{"action":{"type":"string"}},"required":["action"]}`
)

// TestReadToolAnswer: valid answers become what the tool receives; others are errors that name the
// field and say what was expected.
func TestReadToolAnswer(t *testing.T) {
	const accept, decline, cancel = teamv1.ToolAnswer_ACTION_ACCEPT, teamv1.ToolAnswer_ACTION_DECLINE, teamv1.ToolAnswer_ACTION_CANCEL
	for _, tt := range []struct {
		schema, url, text string
		action            teamv1.ToolAnswer_Action
		want              string // the content, or the error
	}{
		{oneSchema, "", "3", accept, `{"n":3}`},
		{oneSchema, "", ` {"n": 3} `, accept, `{"n":3}`},
		{oneSchema, "", "3.0", accept, `{"n":3}`},
		{oneSchema, "", `{"action":"accept","content":{"n":9}}`, accept, `{"n":9}`},
		{oneSchema, "", "Decline", decline, ""},
		{oneSchema, "", "cancel", cancel, ""},
		{oneSchema, "", `{"action":"decline"}`, decline, ""},
		{oneSchema, "", "10", 0, `has a wrong value for the field "n": maximum: got 10, want 9; answer with the value of "n", with`},
		{oneSchema, "", "0", 0, `the field "n": minimum: got 0, want 1`},
		{oneSchema, "", "2.5", 0, `: got number, want integer`},
		{oneSchema, "", "1e999999999999", 0, `the field "n"`},
		{oneSchema, "", "many", 0, `: got string, want integer`},
		{oneSchema, "", `{"n":"3"}`, 0, `: got string, want integer`},
		{oneSchema, "", `{}`, 0, `has no value for the field "n", which is required; answer with the value of "n"`},
		{oneSchema, "", `{"n":3,"m":4}`, 0, `has the field "m", which was not asked for`},
		{oneSchema, "", `{"action":"perhaps"}`, 0, `: got string, want integer`},
		{oneSchema, "", "", 0, "is not a valid answer"},
		{manySchema, "", "ann", 0, "is not a valid answer; answer with a JSON object such as"},
		{manySchema, "", `{"name":"ann"}`, accept, `{"name":"ann","sure":true}`},
		{manySchema, "", `{"name":"ann","sure":false,"color":"g","size":"l","tags":["x","z"],"price":9.99,"mail":"a@b.example","day":"2026-01-31","at":"2026-01-31T09:30:00Z","site":"https://x.example/","code":"AB","more":["p"]}`, accept,
			`{"at":"2026-01-31T09:30:00Z","code":"AB","color":"g","day":"2026-01-31","mail":"a@b.example","more":["p"],"name":"ann","price":9.99,"site":"https://x.example/","size":"l","sure":false,"tags":["x","z"]}`},
		{manySchema, "", `{"name":"a"}`, 0, `"name": minLength: got 1, want 2`},
		{manySchema, "", `{"name":"üüüüü"}`, accept, `{"name":"üüüüü","sure":true}`},
		{manySchema, "", `{"name":"annann"}`, 0, `: maxLength: got 6, want 5`},
		{manySchema, "", `{"name":5}`, 0, `"name": got number, want string`},
		{manySchema, "", `{"name":"ann","mail":"ann"}`, 0, `"mail": 'ann' is not valid email: missing @`},
		{manySchema, "", `{"name":"ann","day":"31.1."}`, 0, `"day": '31.1.' is not valid date`},
		{manySchema, "", `{"name":"ann","at":"9:30"}`, 0, `"at"`},
		{manySchema, "", `{"name":"ann","site":"x"}`, 0, `"site"`},
		{manySchema, "", `{"name":"ann","code":"ab"}`, 0, `"code": 'ab' does not match pattern '^[A-Z]+$'`},
		{manySchema, "", `{"name":"ann","color":"b"}`, 0, `"color": value must be one of`},
		{manySchema, "", `{"name":"ann","size":"m"}`, 0, `"size"`},
		{manySchema, "", `{"name":"ann","tags":[]}`, 0, `"tags": minItems: got 0, want 1`},
		{manySchema, "", `{"name":"ann","tags":["x","y","z"]}`, 0, `maxItems: got 3, want 2`},
		{manySchema, "", `{"name":"ann","tags":["w"]}`, 0, `: value must be one of 'x', 'y', 'z'`},
		{manySchema, "", `{"name":"ann","tags":"x"}`, 0, `"tags": got string, want array`},
		{manySchema, "", `{"name":"ann","tags":[1]}`, 0, `got number, want string`},
		{manySchema, "", `{"name":"ann","price":0}`, 0, `"price"`},
		{manySchema, "", `{"name":"ann","price":10}`, 0, `"price"`},
		{manySchema, "", `{"name":"ann","sure":"yes"}`, 0, `"sure": got string, want boolean`},
		{manySchema, "", `{"name":"ann","sure":null}`, 0, `"sure": got null, want boolean`},
		{manySchema, "", `{"color":"b","x":1}`, 0, `has a wrong value for the field "color": value must be one of 'r', 'g', and has no value for the field "name", which is required, and has the field "x", which was not asked for; answer with a JSON object`},
		{manySchema, "", `{"name":null}`, 0, `got null, want string`},
		{colorSchema, "", "green", 0, `"color": 'oneOf' failed, none matched`},
		{colorSchema, "", "r", accept, `{"color":"r"}`},
		{colorSchema, "", "blue", 0, `"color": 'oneOf' failed, none matched`},
		{sureSchema, "", "yes", accept, `{"sure":true}`},
		{sureSchema, "", "FALSE", accept, `{"sure":false}`},
		{sureSchema, "", "{}", accept, `{}`},
		{sureSchema, "", "maybe", 0, `"sure": got string, want boolean`},
		{listSchema, "", "a, b", 0, `"tags": got string, want array`},
		{listSchema, "", `["a,b"]`, accept, `{"tags":["a,b"]}`},
		{textSchema, "", `{"action":"decline"}`, accept, `{"action":"decline"}`},
		{textSchema, "", `<go> & run`, accept, `{"action":"<go> & run"}`},
		{wordsSchema, "", "cancel", accept, `{"what":"cancel"}`},
		{wordsSchema, "", "Cancel", cancel, ""},
		{wordsSchema, "", `{"action":"cancel"}`, cancel, ""},
		{wordsSchema, "", "decline", decline, ""},
		{wordsSchema, "", "keep", accept, `{"what":"keep"}`},
		{wordsSchema, "", "", 0, `or "decline" or {"action": "cancel"}`},
		{bigSchema, "", "9007199254740993", accept, `{"n":9007199254740993}`},
		{bigSchema, "", "18446744073709551615", accept, `{"n":18446744073709551615}`},
		{bigSchema, "", "123456789012345678901234567890", 0, `"n": it must be a number that fits into 64 bits without losing digits`},
		{bigSchema, "", "0.1", accept, `{"n":0.1}`},
		{bigSchema, "", "1e-999999999", 0, "without losing digits"},
		{bigSchema, "", "1e999999999", 0, "without losing digits"},
		{`{"type":"object","properties":{"n":{"type":"integer","multipleOf":5}}}`, "", "7", 0, `"n": multipleOf: got 7, want 5`},
		{`{"type":"object","properties":{"s":{"type":"string","const":"x"}}}`, "", "y", 0, `"s": value must be 'x'`},
		{`{"type":"object","properties":{"l":{"type":"array","uniqueItems":true,"items":{"type":"string","enum":["x","y"]}}}}`, "", `["x","x"]`, 0, "items at 0 and 1 are equal"},
		{`{"type":"object","properties":{"s":{"type":"string","pattern":"^(?=a)"}}}`, "", "b", accept, `{"s":"b"}`}, // which Go cannot read
		{`{"type":"object","properties":{"s":{"type":"string","pattern":"^(?=a)","minLength":2}}}`, "", "a", 0, "minLength: got 1, want 2"},
		{`{"type":"object","properties":{"s":{"type":"string","pattern":"^a"}}}`, "", "b", 0, "does not match pattern"},
		{`{"type":"object","properties":{"pattern":{"type":"string"}},"patternProperties":{"^(?!a)":{"type":"integer"}}}`, "", `{"pattern":"(?=a"}`, accept, `{"pattern":"(?=a"}`},
		{`{"type":"object","description":"` + strings.Repeat("x", 64<<10) + `"}`, "", "accept", 0, "at most 65536 are allowed"},
		{"", "https://x.example/" + strings.Repeat("x", 2048), "done", 0, "at most 2048 are allowed"},
		{"", "https://bank.example@x.example/", "done", 0, "user name or password"},
		{"", "", "accept", accept, `{}`},
		{"", "", "yes", accept, `{}`},
		{"", "", "no", decline, ""},
		{"", "", "perhaps", 0, `answer with "accept", or "decline" or "cancel"`},
		{`{"type":"object","properties":{"s":{"$ref":"https://x.example/s"}}}`, "", "a", 0, "the requested schema cannot be used to check answers"},
		{`{"type":"object","properties":{"s":{"type":"string","allOf":[{"$ref":"https://x.example/s"}]}}}`, "", "a", 0, "the requested schema cannot be used to check answers"},
		{`{"type":"object","properties":{"l":{"type":"array","items":{}}}}`, "", "[1e999999999]", 0, "without losing digits"},
		{`{"type":"object","properties":{"n":{"type":"number","maximum":1e999999}}}`, "", "1", 0, "it has a number that does not fit into 64 bits"},
		{`{"type":"object","minProperties":1,"properties":{"s":{"type":"string"}}}`, "", "{}", 0, "does not match the requested schema: minProperties: got 0, want 1; answer with"},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"s":{"type":"string"}}}`, "", "a", accept, `{"s":"a"}`},
		{"", "https://x.example/", "done", accept, `{}`},
		{"", "https://x.example/", "decline", decline, ""},
		{"", "https://x.example/", "my password", 0, `answer with "done"`},
		{"", "file:///etc/passwd", "done", 0, "not an http or https address"},
		{`{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"integer"}}}}}`, "", `{"a":{"b":1}}`, accept, `{"a":{"b":1}}`},
		{`{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"integer"}}}}}`, "", `{"a":{"b":"x"}}`, 0, `"a.b": got string, want integer`},
		{`{"type":"object","properties":{"a":true}}`, "", `{"a":1}`, accept, `{"a":1}`},
		{`{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"integer"}},"required":["b"]}}}`, "", `{"a":{}}`, 0, `a wrong value for the field "a": missing property`},
		{`{"type":"object","properties":{"s":{"enum":["cancel","keep"]}}}`, "", "cancel", accept, `{"s":"cancel"}`},
		{`{"type":"object","properties":{"s":{"type":["string","null"]}}}`, "", "2024", accept, `{"s":"2024"}`},
		{`{"type":"object","properties":{"s":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, "", "true", accept, `{"s":"true"}`},
		{`{"type":"object","properties":{"n":{"type":"integer","minimum":100}}}`, "", "1", 0, `such as {"n":100}`},
		{`{"type":"object","properties":{"p":{"enum":[{"pattern":"(?=a)"}]}}}`, "", `{"p":{"pattern":"(?=a)"}}`, accept, `{"p":{"pattern":"(?=a)"}}`},
		{`{"type":"object","properties":{"n":{"enum":[9007199254740993]}}}`, "", "1", 0, `such as {"n":9007199254740993}`},
		{`{"type":"object","properties":{"p":{"enum":[{"pattern":"(?=a)"}]}}}`, "", `{"p":{}}`, 0, `"p": 'enum' failed`},
		{`{"type":"object","properties":{"c":{"$ref":"#/$defs/C"}},"$defs":{"C":{"type":"string","enum":["x"]}}}`, "", `{"c":"x"}`, accept, `{"c":"x"}`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/r","definitions":{"r":{"type":"object"}}}`, "", `{"z":1}`, 0, "is a reference; it must list its fields"},
		{`{"type":"object","properties":{"s":{"allOf":[` + strings.Repeat(`{"$ref":"#/$defs/C"},`, 21) + `{}]}},"$defs":{"C":{}}}`, "", "x", 0, "has 21 references; at most 20"},
		{`{"type":"object","properties":{"s":{"type":"string","pattern":"` + strings.Repeat("x{1000}", 200) + `"}}}`, "", "x", accept, `{"s":"x"}`}, // left to the server
		{`{"type":"object","properties":{"` + strings.Repeat("n", 101) + `":{"type":"string"}}}`, "", "a", 0, "name has 101 bytes; at most 100"},
		{`{"type":"array"}`, "", "x", 0, "it must be object"},
		{`{"type":"object","required":["a"]}`, "", "x", 0, `requires "a", which is not one of its fields`},
	} {
		a, err := forms.ReadToolAnswer(&teamv1.ToolQuestion{Schema: tt.schema, Url: tt.url}, agent.NewMessage(tt.text))
		switch {
		case tt.action == 0:
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %q gives %v %v, want the error %s", tt.schema, tt.text, a, err, tt.want)
			}
		case err != nil || a.GetAction() != tt.action || a.GetContent() != tt.want:
			t.Errorf("%s: %q gives %v %v, want %s", tt.schema, tt.text, a, err, tt.want)
		}
	}
	data := func(v any) *a2av1.Message {
		value, err := structpb.NewValue(v)
		if err != nil {
			t.Fatal(err)
		}
		return &a2av1.Message{Parts: []*a2av1.Part{{Content: &a2av1.Part_Data{Data: value}}}}
	}
	q := &teamv1.ToolQuestion{Schema: oneSchema}
	if a, err := forms.ReadToolAnswer(q, data(map[string]any{"n": 3})); err != nil || a.GetContent() != `{"n":3}` {
		t.Error(a, err)
	}
	if a, err := forms.ReadToolAnswer(q, data(map[string]any{"action": "cancel"})); err != nil || a.GetAction() != cancel {
		t.Error(a, err)
	}
	for _, bad := range []*a2av1.Message{data([]any{1}), data(3), {Parts: append(agent.TextParts("3"), agent.TextParts("4")...)}} {
		if a, err := forms.ReadToolAnswer(q, bad); err == nil {
			t.Error(a)
		}
	}
}

// TestToolForm: the text of a question lists what a client that shows only text needs.
func TestToolForm(t *testing.T) {
	f, err := forms.ParseToolForm(&teamv1.ToolQuestion{Schema: manySchema})
	if err != nil {
		t.Fatal(err)
	}
	text := f.Describe()
	for _, want := range []string{
		`- "name" (required): {"type":"string","minLength":2,"maxLength":5,"description":"Your name."}` + "\n", `- "color" (optional): {"type":"string","enum":["r","g"],"enumNames":["Red","Green"]}`,
		`- "sure" (optional): {"type":"boolean","default":true}`, `Answer with a JSON object such as {"name":"…"}, or "decline" or "cancel".`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if !strings.HasPrefix(text, `- "name"`) || f.Options() != nil {
		t.Errorf("%s\n%v", text, f.Options())
	}
	for schema, want := range map[string]string{oneSchema: "", sureSchema: "true false decline cancel", colorSchema: "r g decline cancel", "": "accept decline cancel"} {
		f, err := forms.ParseToolForm(&teamv1.ToolQuestion{Schema: schema})
		if err != nil || strings.Join(f.Options(), " ") != want {
			t.Errorf("%s: %v %v", schema, f.Options(), err)
		}
	}
}

func FuzzP17_ReadToolAnswer(f *testing.F) {
	for _, schema := range []string{oneSchema, manySchema, listSchema, ""} {
		f.Add(schema, `{"n":3}`)
	}
	f.Fuzz(func(t *testing.T, schema, text string) {
		q := &teamv1.ToolQuestion{Schema: schema}
		a, err := forms.ReadToolAnswer(q, agent.NewMessage(text))
		if err != nil || a.GetAction() != teamv1.ToolAnswer_ACTION_ACCEPT {
			return
		}
		if again, err := forms.ReadToolAnswer(q, agent.NewMessage(`{"action":"accept","content":`+a.GetContent()+`}`)); err != nil && !strings.Contains(schema, "action") {
			t.Errorf("%s: %q was accepted as %s, which is refused: %v %v", schema, text, a.GetContent(), again, err)
		}
	})
}

// TestToolContent: the server receives the number that was checked.
func TestToolContent(t *testing.T) {
	a, err := forms.ReadToolAnswer(&teamv1.ToolQuestion{Schema: bigSchema}, agent.NewMessage("9007199254740993"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(forms.ToolContent(a)); err != nil || string(b) != `{"n":9007199254740993}` {
		t.Errorf("%s %v", b, err)
	}
}

// TestToolTextIsQuoted: the words of a tool cannot pass for ours.
func TestToolTextIsQuoted(t *testing.T) {
	if got, want := forms.Quoted("Pay?\r\nAnswer\u2028\u202ewith", 100), "> Pay?\n> Answer\n> with"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := forms.Quoted("abcdef", 2), "> ab\n[cut: 4 more bytes]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	f, err := forms.ParseToolForm(&teamv1.ToolQuestion{Schema: `{"type":"object","properties":{"n\nAnswer with 1":{"type":"string","description":"` + "\u202e\u0085\u009b" + strings.Repeat("x", 1200) + `","enum":["a` + "\u0085\u202e" + `"],"enumNames":["A\nB"]}}}`})
	if err != nil {
		t.Fatal(err)
	}
	text := f.Describe()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, `- "n\nAnswer with 1" (optional): {"type":`) || !strings.Contains(text, "more bytes]") || strings.ContainsAny(text, "\u202e\u0085\u009b") {
		t.Error(text)
	}
}
