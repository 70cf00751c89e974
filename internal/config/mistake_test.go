package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// textOf is a file of one agent with these lines as its keys.
func textOf(lines ...string) string {
	return "version: v1\nagents:\n  writer:\n" + strings.Join(lines, "\n") + "\n"
}

// stepsText is a file of one workflow with these lines as its steps.
func stepsText(lines ...string) string {
	return "version: v1\nagents:\n  writer: {scripted: {steps: [{echo: true}]}}\nteams:\n  line:\n    workflow:\n      steps:\n" +
		strings.Join(lines, "\n") + "\n"
}

const scriptedLine = "    scripted: {steps: [{echo: true}]}"

// mistakes are texts that are not YAML, and the one fault that is reported of each.
var mistakes = []struct{ name, text, want string }{
	{"a colon in a value", textOf("    instructions: Write: clearly", scriptedLine),
		`team.yaml:4:24  a value with ": " in it must be in quotes (put the value in quotes: instructions: "...")`},
	{"a colon at the end of a value", textOf("    description: note:", scriptedLine),
		`team.yaml:4:22  a value with ":" at its end must be in quotes (put the value in quotes: description: "...")`},
	{"a colon in a value with double quotes", textOf(`    description: say "hi": then go`, scriptedLine),
		`team.yaml:4:26  a value with ": " in it must be in quotes (put the value in quotes: description: '...')`},
	{"a colon in a value with both quotes", textOf(`    description: don't say "hi": go`, scriptedLine),
		`team.yaml:4:32  a value with ": " in it must be in quotes (write description: | and the text below it, indented by 6 spaces)`},
	{"a colon in a later line of a value", textOf("    instructions: Write clearly", "      and note: never lie", scriptedLine),
		`team.yaml:5:15  a value with ": " in it must be in quotes (put the value in quotes: instructions: "...")`},
	{"a colon in an entry", textOf("    skills:", "      - id: a", "        examples:", "          - Write: an email: now", scriptedLine),
		`team.yaml:7:28  a value with ": " in it must be in quotes (put the value in quotes: "...")`},
	{"a colon in a value in brackets", "version: v1\nagents:\n  writer: {description: a: b, scripted: {steps: [{echo: true}]}}\n",
		`team.yaml:3:26  a value with ": " in it must be in quotes (put the value in quotes: description: "...")`},
	{"a value that begins with braces", stepsText("        - id: draft", "          agent: writer", "          task: {{input}} please"),
		`team.yaml:10:17  a value that begins with {{ must be in quotes (put the value in quotes: task: "...")`},
	{"a value that is braces", stepsText("        - id: draft", "          agent: writer", "          task: {{input}}"),
		`team.yaml:10:17  a value that begins with {{ must be in quotes (put the value in quotes: "{{...}}")`},
	{"braces in a value in braces", stepsText("        - {id: draft, agent: writer, task: Write about {{input}}}"),
		`team.yaml:8:56  a value with {{ in it must be quoted within brackets (put the value in quotes: task: "...")`},
	{"a colon before braces", stepsText("        - id: draft", "          agent: writer", "          task: Improve this: {{steps.x.text}}"),
		`team.yaml:10:29  a value with ": " in it must be in quotes (put the value in quotes: task: "...")`},
	{"braces in brackets", "version: v1\nagents:\n  writer: {scripted: {steps: [{text: {{input}}}]}}\n",
		`team.yaml:3:38  a value that begins with {{ must be in quotes (put the value in quotes: "{{...}}")`},
	{"a tab", textOf("\tdescription: Writes.", scriptedLine),
		`team.yaml:4:1  this line is indented with a tab (indent it by 4 spaces instead, 2 more than line 3)`},
	{"a tab before an entry", stepsText("        - id: draft", "          agent: writer", "\t- id: edit"),
		`team.yaml:10:1  this line is indented with a tab (indent it by 8 spaces instead, as line 8)`},
	{"a tab behind spaces", textOf("    description: Writes.", "  \t  scripted: {steps: [{echo: true}]}"),
		`team.yaml:5:3  this line is indented with a tab (indent it by 4 spaces instead, as line 4)`},
	{"too many spaces", textOf("    description: Writes.", "      scripted: {steps: [{echo: true}]}"),
		`team.yaml:5:7  wrong indentation: 6 spaces before this key (indent it by 4 spaces as line 4)`},
	{"too few spaces", textOf("    description: Writes.", "   scripted: {steps: [{echo: true}]}"),
		`team.yaml:5:4  wrong indentation: 3 spaces before this key (indent it by 4 spaces as line 4)`},
	{"spaces at the top", "version: v1\n agents:\n  writer: {scripted: {steps: [{echo: true}]}}\n",
		`team.yaml:2:2  wrong indentation: 1 space before this key (remove the spaces before it, as in line 1)`},
	{"a key between two", "version: v1\nagents:\n    writer: {scripted: {steps: [{echo: true}]}}\n  critic: {scripted: {steps: [{echo: true}]}}\n",
		`team.yaml:4:3  wrong indentation: 2 spaces before this key (indent it by 4 spaces as line 3)`},
	{"an entry with too few spaces", stepsText("        - id: draft", "          agent: writer", "       - id: edit", "         agent: writer"),
		`team.yaml:10:8  wrong indentation: 7 spaces before this list item (indent it by 8 spaces as line 8)`},
	{"an entry with too many spaces", stepsText("        - id: draft", "          agent: writer", "          - id: edit", "            agent: writer"),
		`team.yaml:10:11  wrong indentation: 10 spaces before this list item (indent it by 8 spaces as line 8)`},
	{"a key of an entry with too few spaces", stepsText("        - id: draft", "         agent: writer"),
		`team.yaml:9:10  wrong indentation: 9 spaces before this key (indent it by 10 spaces, below the first key in line 8)`},
	{"a key of an entry with too many spaces", stepsText("        - id: draft", "            agent: writer"),
		`team.yaml:9:13  wrong indentation: 12 spaces before this key (indent it by 10 spaces, below the first key in line 8)`},
	{"a key of an entry below its dash", stepsText("        - id: draft", "        agent: writer"),
		`team.yaml:9:9  wrong indentation: 8 spaces before this key (indent it by 10 spaces, below the first key in line 8)`},
	{"an entry among keys", textOf("    description: Writes.", "    - scripted", scriptedLine),
		`team.yaml:5:5  a list item where a key was expected (write the key of the list in the line above, or remove the dash)`},
	{"text of a block with too few spaces", textOf("    instructions: |", "      Write.", "     Less: here", scriptedLine),
		`team.yaml:6:6  wrong indentation: 5 spaces before this key (indent it by 6 spaces if it belongs to the text above, or by 4 spaces as line 4)`},
	{"no colon at the top", "version: v1\nagents\n  writer: {scripted: {steps: [{echo: true}]}}\n",
		`team.yaml:2:7  a colon is missing after this key (write agents:)`},
	{"no colon behind an id", "version: v1\nagents:\n  writer\n    scripted: {steps: [{echo: true}]}\n",
		`team.yaml:3:9  a colon is missing after this key (write KEY: and its value after it, or below it with more spaces)`},
	{"no colon before a value", textOf("    description Writes.", scriptedLine),
		`team.yaml:4:16  a colon is missing after this key (write description: and a space before the value)`},
	{"no colon between keys", textOf("    description: Writes.", "    model fast", scriptedLine),
		`team.yaml:5:10  a colon is missing after this key (write model: and a space before the value)`},
	{"no space behind a colon", textOf("    description:Writes.", scriptedLine),
		`team.yaml:4:17  a space is missing after the colon (write description: and a space before the value)`},
	{"no space behind a colon at the top", "version:v1\nagents:\n  writer: {scripted: {steps: [{echo: true}]}}\n",
		`team.yaml:1:9  a space is missing after the colon (write version: and a space before the value)`},
	{"no space behind a colon in brackets", "version: v1\nagents:\n  writer: {description:Writes., scripted: {steps: [{echo: true}]}}\n",
		`team.yaml:3:12  a space is missing after the colon of "description" (write description: and a space before the value)`},
	{"no space behind the only colon", textOf("    model:fast", "  critic:", scriptedLine),
		`team.yaml:4:5  a space is missing after the colon of "model" (write model: and a space before the value)`},
	{"a second line of text below a key", textOf("    instructions: You help.", "    Be brief.", scriptedLine),
		`team.yaml:5:5  text where a key was expected (indent it by 6 spaces if it belongs to the value above, or begin it with a key and ": ")`},
	{"two keys in a line", "version: v1\nagents:\n  writer: scripted: {steps: [{echo: true}]}\n",
		`team.yaml:3:19  a value with ": " in it must be in quotes (write scripted: in the next line with more spaces; if it is text, put the value in quotes: "...")`},
	{"a list without brackets", textOf("    scripted: {steps: [{echo: true}]}, {}"),
		`team.yaml:4:38  text after the closing } (put the value in quotes if it is text: scripted: "...")`},
	{"no space behind a dash", stepsText("        -{id: draft, agent: writer}"),
		`team.yaml:8:10  a space is missing after the dash (write a dash and a space before each entry of a list)`},
	{"a quote without end", textOf(`    description: "Writes.`, scriptedLine),
		`team.yaml:4:18  this " is never closed (close it with ")`},
	{"a quote without end before another", textOf(`    description: "Writes.`, `    scripted: {steps: [{text: "hello"}]}`),
		`team.yaml:4:18  this " is never closed (close it with ")`},
	{"a quote without end in brackets", "version: v1\nagents:\n  writer: {description: \"Writes., scripted: {steps: [{text: \"hello\"}]}}\n",
		`team.yaml:3:62  text after the closing " (put the whole value in quotes; within them, write \" for ")`},
	{"an apostrophe in single quotes", textOf(`    description: 'it's fine'`, scriptedLine),
		`team.yaml:4:22  text after the closing ' (put the whole value in quotes; within them, write '' for ')`},
	{"text behind quotes", textOf(`    description: "Say" clearly`, scriptedLine),
		`team.yaml:4:24  text after the closing " (put the whole value in quotes; within them, write \" for ")`},
	{"a backslash in quotes", textOf(`    description: "C:\work\docs"`, scriptedLine),
		`team.yaml:4:21  unknown escape sequence in double quotes (write \\ for a backslash, or put the value in single quotes)`},
	{"an at sign", textOf("    description: @home", scriptedLine),
		`team.yaml:4:18  a value that begins with @ must be in quotes (put the value in quotes: description: "...")`},
	{"a per cent sign", textOf("    description: %done", scriptedLine),
		`team.yaml:4:18  a value that begins with % must be in quotes (put the value in quotes: description: "...")`},
	{"a star", textOf("    description: *important* be nice", scriptedLine),
		`team.yaml:4:18  a value that begins with * must be in quotes (put the value in quotes: description: "...")`},
	{"text behind a bracket", textOf("    description: [draft] writes", scriptedLine),
		`team.yaml:4:26  text after the closing ] (put the value in quotes if it is text: description: "...")`},
	{"a missing comma", "version: v1\nagents:\n  writer: {scripted: {steps: [{echo: true} {echo: true}]}}\n",
		`team.yaml:3:44  a comma is missing before this (write a comma between the entries)`},
	{"a missing comma at the end of a line", "version: v1\nagents: {\n  writer: {scripted: {steps: [{echo: true}]}}\n  critic: {scripted: {steps: [{echo: true}]}}\n}\n",
		`team.yaml:4:3  a comma is missing before this (write a comma between the entries)`},
	{"one bracket too many", "version: v1\nagents:\n  writer: {scripted: {steps: [{echo: true}]}}}\n",
		`team.yaml:3:46  unexpected } (remove it, or add the missing {)`},
	{"the wrong bracket", "version: v1\nagents:\n  writer: {scripted: {steps: [{echo: true}}}\n",
		`team.yaml:3:30  this [ is never closed (close it with ])`},
	{"an open bracket before keys", stepsText("        - {id: draft, agent: writer", "        - {id: edit, agent: writer}"),
		`team.yaml:8:11  this { is never closed (close it with })`},
	{"a list behind a key", textOf("    input_modes: - text/plain", scriptedLine),
		`team.yaml:4:18  a list item cannot follow a key on the same line (write it on the next line, or write [one, two])`},
}

// TestMistakesInYAML: invalid YAML is reported at the position of the cause, with a hint.
func TestMistakesInYAML(t *testing.T) {
	for _, tt := range mistakes {
		t.Run(tt.name, func(t *testing.T) {
			fs := faultsOf(t, tt.text)
			if len(fs) != 1 {
				t.Fatalf("faults %v", fs)
			}
			if got := fs[0].String(); got != tt.want {
				t.Errorf("got  %s\nwant %s\n%s", got, tt.want, tt.text)
			}
			crlf := faultsOf(t, strings.ReplaceAll(tt.text, "\n", "\r\n"))
			if len(crlf) != 1 || crlf[0].String() != tt.want {
				t.Errorf("with CRLF: %v", crlf)
			}
		})
	}
}

// TestMistakesNextToSecrets: neither a message nor a hint nor a source line has what may be a secret.
func TestMistakesNextToSecrets(t *testing.T) {
	const head = "version: v1\nmodels:\n  fast:\n    provider: openai\n    name: small\n"
	for _, text := range []string{
		"    api_key: sk-SECRET: abc\n",
		"    api_key: \"sk-SECRET\nagents: {}\n",
		"    api_key: \"sk\"SECRET\n",
		"    api_key: 'sk'SECRET'\n",
		"    api_key: @SECRET\n",
		"    api_key: [SECRET] x\n",
		"    api_key: {{SECRET}}\n",
		"    api_key: {{SECRET}} x\n",
		"    api_key: \"\\SECRET\"\n",
		"      api_key: sk-SECRET\n",
		"   api_key: sk-SECRET\n",
		"\tapi_key: sk-SECRET\n",
		"    api_key sk-SECRET\n",
		"    api_key:sk-SECRET\n    base_url: x\n",
		"    api_key:\n      sk-SECRET\n      more: x\n",
		"    api_key:\n      - sk-SECRET: x: y\n",
		"    api_key: |\n      sk\n     SECRET: x\n",
		"    sk-SECRET\n    base_url: x\n",
		"  slow: {api_key:sk-SECRET, name: small}\n",
		"  slow:\n    api_key:sk-SECRET\n",
		"    sk SECRET\n",
	} {
		fs := faultsOf(t, head+text)
		if len(fs) == 0 || strings.Contains(fs.Error(), "SECRET") || strings.Contains(fs.Error(), "not YAML") {
			t.Errorf("%s%v", text, fs)
		}
	}
}

// TestMistakeFindsNone: nothing is found in files that are YAML.
func TestMistakeFindsNone(t *testing.T) {
	files := 0
	for _, dir := range []string{"../../examples", "../../tests", "../../docs", "../../.github", "../../internal", "../../api"} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil
			}
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".yaml") {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil || yaml.Unmarshal(data, new(yaml.Node)) != nil {
				return err
			}
			files++
			if m := findMistake(strings.Split(string(data), "\n")); m != nil && !strings.HasSuffix(path, "alias.yaml") { // aliases are refused
				t.Errorf("%s: found %+v", path, *m)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 60 {
		t.Errorf("only %d files", files)
	}
	for _, text := range validTexts {
		if err := yaml.Unmarshal([]byte(text), new(yaml.Node)); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if m := findMistake(strings.Split(text, "\n")); m != nil {
			t.Errorf("%q: found %+v", text, *m)
		}
	}
}

// validTexts are YAML that is rarely written.
var validTexts = []string{
	"steps:\n- id: a\n  after: [b]\n- id: b\nnext: c\n",
	"- - a\n  - b\n- c: d\n  e: f\n",
	"a: >-\n  text: with\n\n    more: colons\n\n  and [brackets\nb: |2\n    two\n  one\nc: d\n",
	"a: plain text\n  that - goes on\n  with {{braces}} and \"quotes\"\nb: c\n",
	"a: \"quoted\n  b: text\n\n  in lines\"\nc: 'it''s'\n",
	"a: {b: [c,\n  d], \"e\":f, g:\n  h}\ni: j # {\n",
	"{\n\"version\": \"v1\",\n\"agents\": {\n\"a\": {}\n}\n}\n",
	"a: http://host:80/x?y#z\nb: &base {c: d}\n? complex\n: value\n",
	"\"key: one\": a\n'two': b\nthree : c\n",
	"a:\n  text alone\nb:\n  \"quoted\"\nc:\n  {d: e}\n",
	"# only\n\na:\n# at the left\n  b: c\n---\nd: e\n",
	"a: b\t# tab\nc:\td\n  \t\ne: f\n",
	"- |\n text\n- >\n more\n-\n  a: b\n",
	"a: -1\nb: -x\nc: \"x\\u00e9\\\n  y\"\n",
}

// TestSyntaxFallback pins what is said where the YAML reader stops and no mistake is found: the
// line that its error names, and its words. A version of it that words errors differently fails here.
func TestSyntaxFallback(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"version: v1\nagents: !<bad x\n", "team.yaml:2:1  not YAML: "},
		{"%YAML 9.0\n---\nversion: v1\n", "team.yaml:1:1  not YAML: "},
	} {
		fs := faultsOf(t, tt.text)
		if len(fs) != 1 || !strings.HasPrefix(fs[0].String(), tt.want) || strings.Contains(fs[0].Message, "yaml:") || strings.Contains(fs[0].Message, "line ") {
			t.Errorf("%q: %v", tt.text, fs)
		}
	}
}

// FuzzP17_FindMistake: no text makes the search panic or run on, and what it finds is in the text.
func FuzzP17_FindMistake(f *testing.F) {
	for _, tt := range mistakes {
		f.Add(tt.text)
	}
	for _, text := range validTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Split(text, "\n")
		if m := findMistake(lines); m != nil && (m.line < 1 || m.line > len(lines) || m.col < 1 || m.col > len([]rune(lines[m.line-1]))+1 || m.hint == "") {
			t.Errorf("%q: %+v", text, *m)
		}
	})
}
