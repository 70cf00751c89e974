package config

import (
	"strings"
	"testing"
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
		`team.yaml:4:24  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"a colon at the end of a value", textOf("    description: note:", scriptedLine),
		`team.yaml:4:22  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"a colon in a value with double quotes", textOf(`    description: say "hi": then go`, scriptedLine),
		`team.yaml:4:26  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"a colon in a value with both quotes", textOf(`    description: don't say "hi": go`, scriptedLine),
		`team.yaml:4:32  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"a colon in a later line of a value", textOf("    instructions: Write clearly", "      and note: never lie", scriptedLine),
		`team.yaml:5:15  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"a colon in an entry", textOf("    skills:", "      - id: a", "        examples:", "          - Write: an email: now", scriptedLine),
		`team.yaml:7:28  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"a colon in a value in brackets", "version: v1\nagents:\n  writer: {description: a: b, scripted: {steps: [{echo: true}]}}\n",
		`team.yaml:3:26  expected a comma or the closing bracket (write a comma between entries, close each bracket, and put text with : ? , { or [ in it in quotes)`},
	{"a value that begins with braces", stepsText("        - id: draft", "          agent: writer", "          task: {{input}} please"),
		`team.yaml:10:27  a value that begins with {{ must be in quotes (put the value in quotes: "{{...}}"; the mapping begins in line 8)`},
	{"a value that is braces", stepsText("        - id: draft", "          agent: writer", "          task: {{input}}"),
		`team.yaml:10:17  a value that begins with {{ must be in quotes (put the value in quotes: "{{...}}")`},
	{"braces in a value in braces", stepsText("        - {id: draft, agent: writer, task: Write about {{input}}}"),
		`team.yaml:8:56  expected a comma or the closing bracket (write a comma between entries, close each bracket, and put text with : ? , { or [ in it in quotes)`},
	{"a colon before braces", stepsText("        - id: draft", "          agent: writer", "          task: Improve this: {{steps.x.text}}"),
		`team.yaml:10:29  a value that begins with {{ must be in quotes (put the value in quotes: "{{...}}")`},
	{"braces in brackets", "version: v1\nagents:\n  writer: {scripted: {steps: [{text: {{input}}}]}}\n",
		`team.yaml:3:38  a value that begins with {{ must be in quotes (put the value in quotes: "{{...}}")`},
	{"a tab", textOf("\tdescription: Writes.", scriptedLine),
		`team.yaml:4:1  this line is indented with a tab (indent it with spaces)`},
	{"a tab before an entry", stepsText("        - id: draft", "          agent: writer", "\t- id: edit"),
		`team.yaml:10:1  this line is indented with a tab (indent it with spaces)`},
	{"a tab behind spaces", textOf("    description: Writes.", "  \t  scripted: {steps: [{echo: true}]}"),
		`team.yaml:5:3  this line is indented with a tab (indent it with spaces)`},
	{"too many spaces", textOf("    description: Writes.", "      scripted: {steps: [{echo: true}]}"),
		`team.yaml:5:15  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"too few spaces", textOf("    description: Writes.", "   scripted: {steps: [{echo: true}]}"),
		`team.yaml:5:4  expected a key (indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole; the mapping begins in line 3)`},
	{"spaces at the top", "version: v1\n agents:\n  writer: {scripted: {steps: [{echo: true}]}}\n",
		`team.yaml:2:8  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"a key between two", "version: v1\nagents:\n    writer: {scripted: {steps: [{echo: true}]}}\n  critic: {scripted: {steps: [{echo: true}]}}\n",
		`team.yaml:4:3  expected a key (indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole; the mapping begins in line 1)`},
	{"an entry with too few spaces", stepsText("        - id: draft", "          agent: writer", "       - id: edit", "         agent: writer"),
		`team.yaml:10:8  expected a key (indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole; the mapping begins in line 7)`},
	{"an entry with too many spaces", stepsText("        - id: draft", "          agent: writer", "          - id: edit", "            agent: writer"),
		`team.yaml:10:11  expected a key (indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole; the mapping begins in line 8)`},
	{"a key of an entry with too few spaces", stepsText("        - id: draft", "         agent: writer"),
		`team.yaml:9:10  expected a list entry (begin it with a dash and a space; indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole; the list begins in line 8)`},
	{"a key of an entry with too many spaces", stepsText("        - id: draft", "            agent: writer"),
		`team.yaml:9:18  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"a key of an entry below its dash", stepsText("        - id: draft", "        agent: writer"),
		`team.yaml:9:9  expected a list entry (begin it with a dash and a space; indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole; the list begins in line 8)`},
	{"an entry among keys", textOf("    description: Writes.", "    - scripted", scriptedLine),
		`team.yaml:5:5  expected a key (indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole; the mapping begins in line 4)`},
	{"text of a block with too few spaces", textOf("    instructions: |", "      Write.", "     Less: here", scriptedLine),
		`team.yaml:6:6  expected a key (indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole; the mapping begins in line 4)`},
	{"no colon at the top", "version: v1\nagents\n  writer: {scripted: {steps: [{echo: true}]}}\n",
		`team.yaml:3:9  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"no colon behind an id", "version: v1\nagents:\n  writer\n    scripted: {steps: [{echo: true}]}\n",
		`team.yaml:4:13  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"no colon before a value", textOf("    description Writes.", scriptedLine),
		`team.yaml:5:13  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"no colon between keys", textOf("    description: Writes.", "    model fast", scriptedLine),
		`team.yaml:5:5  a colon is missing after a key (write KEY: and a space before the value; put text of several lines in quotes, or below KEY: |)`},
	{"no space behind a colon", textOf("    description:Writes.", scriptedLine),
		`team.yaml:4:5  a space is missing after the colon of "description" (write description: and a space before the value)`},
	{"no space behind a colon at the top", "version:v1\nagents:\n  writer: {scripted: {steps: [{echo: true}]}}\n",
		`team.yaml:1:1  a space is missing after the colon of "version" (write version: and a space before the value)`},
	{"no space behind a colon in brackets", "version: v1\nagents:\n  writer: {description:Writes., scripted: {steps: [{echo: true}]}}\n",
		`team.yaml:3:12  a space is missing after the colon of "description" (write description: and a space before the value)`},
	{"no space behind the only colon", textOf("    model:fast", "  critic:", scriptedLine),
		`team.yaml:4:5  a space is missing after the colon of "model" (write model: and a space before the value)`},
	{"a second line of text below a key", textOf("    instructions: You help.", "    Be brief.", scriptedLine),
		`team.yaml:5:5  a colon is missing after a key (write KEY: and a space before the value; put text of several lines in quotes, or below KEY: |)`},
	{"two keys in a line", "version: v1\nagents:\n  writer: scripted: {steps: [{echo: true}]}\n",
		`team.yaml:3:19  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"a list without brackets", textOf("    scripted: {steps: [{echo: true}]}, {}"),
		`team.yaml:4:38  expected a key (indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole)`},
	{"no space behind a dash", stepsText("        -{id: draft, agent: writer}"),
		`team.yaml:8:27  unexpected colon (put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above)`},
	{"a quote without end", textOf(`    description: "Writes.`, scriptedLine),
		`team.yaml:4:18  this quote is never closed (close it, or write the text without quotes)`},
	{"a quote without end before another", textOf(`    description: "Writes.`, `    scripted: {steps: [{text: "hello"}]}`),
		`team.yaml:5:32  expected a key (indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole; the mapping begins in line 4)`},
	{"a quote without end in brackets", "version: v1\nagents:\n  writer: {description: \"Writes., scripted: {steps: [{text: \"hello\"}]}}\n",
		`team.yaml:3:62  expected a comma or the closing bracket (write a comma between entries, close each bracket, and put text with : ? , { or [ in it in quotes)`},
	{"an apostrophe in single quotes", textOf(`    description: 'it's fine'`, scriptedLine),
		`team.yaml:4:22  expected a key (indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole)`},
	{"text behind quotes", textOf(`    description: "Say" clearly`, scriptedLine),
		`team.yaml:4:24  expected a key (indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole)`},
	{"a backslash in quotes", textOf(`    description: "C:\work\docs"`, scriptedLine),
		`team.yaml:4:21  unknown escape sequence in double quotes (write \\ for a backslash, or put the value in single quotes)`},
	{"an at sign", textOf("    description: @home", scriptedLine),
		`team.yaml:4:18  a value cannot begin with "@" (put the value in quotes)`},
	{"a per cent sign", textOf("    description: %done", scriptedLine),
		`team.yaml:4:18  a value cannot begin with "%" (put the value in quotes)`},
	{"a star", textOf("    description: *important* be nice", scriptedLine),
		`team.yaml:4:18  aliases are not supported (write the value out, or put text that begins with * in quotes)`},
	{"text behind a bracket", textOf("    description: [draft] writes", scriptedLine),
		`team.yaml:4:26  expected a key (indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole)`},
	{"a missing comma", "version: v1\nagents:\n  writer: {scripted: {steps: [{echo: true} {echo: true}]}}\n",
		`team.yaml:3:44  expected a comma or the closing bracket (write a comma between entries, close each bracket, and put text with : ? , { or [ in it in quotes)`},
	{"a missing comma at the end of a line", "version: v1\nagents: {\n  writer: {scripted: {steps: [{echo: true}]}}\n  critic: {scripted: {steps: [{echo: true}]}}\n}\n",
		`team.yaml:4:3  expected a comma or the closing bracket (write a comma between entries, close each bracket, and put text with : ? , { or [ in it in quotes; the bracket begins in line 2)`},
	{"one bracket too many", "version: v1\nagents:\n  writer: {scripted: {steps: [{echo: true}]}}}\n",
		`team.yaml:3:46  expected a key (indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole)`},
	{"the wrong bracket", "version: v1\nagents:\n  writer: {scripted: {steps: [{echo: true}}}\n",
		`team.yaml:3:43  expected a comma or the closing bracket (write a comma between entries, close each bracket, and put text with : ? , { or [ in it in quotes)`},
	{"an open bracket before keys", stepsText("        - {id: draft, agent: writer", "        - {id: edit, agent: writer}"),
		`team.yaml:9:11  expected a comma or the closing bracket (write a comma between entries, close each bracket, and put text with : ? , { or [ in it in quotes; the bracket begins in line 8)`},
	{"a list behind a key", textOf("    input_modes: - text/plain", scriptedLine),
		`team.yaml:4:18  a list cannot begin behind a key (write it on the next line, or write [one, two])`},
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

// TestMistakesNextToSecrets: neither a message nor a hint nor a source line has the value of a key that holds a secret,
// also if the text is not YAML.
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
		"  slow: {api_key:sk-SECRET, name: small}\n",
		"  slow:\n    api_key:sk-SECRET\n",
	} {
		fs := faultsOf(t, head+text)
		if len(fs) == 0 || strings.Contains(fs.Error(), "SECRET") || strings.Contains(fs.Error(), "not YAML") {
			t.Errorf("%s%v", text, fs)
		}
	}
}

// TestSyntaxFallback pins what is said where the YAML reader stops and no mistake is found: the
// line that its error names, and its words. A version of it that words errors differently fails here.
func TestSyntaxFallback(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"version: v1\nagents: !<bad x\n", "team.yaml:2:14  not YAML: "},
		{"%YAML 9.0\n---\nversion: v1\n", "team.yaml:1:1  not YAML: "},
	} {
		fs := faultsOf(t, tt.text)
		if len(fs) != 1 || !strings.HasPrefix(fs[0].String(), tt.want) || strings.Contains(fs[0].Message, "yaml:") || strings.Contains(fs[0].Message, "line ") {
			t.Errorf("%q: %v", tt.text, fs)
		}
	}
}
