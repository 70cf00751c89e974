package source

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	yamlv4 "go.yaml.in/yaml/v4"
)

// Parse parses a file. If the document returned has no root, it has faults.
func Parse(name string, data []byte) *Document {
	d := &Document{Text: NewText(data), Name: name, data: data, damaged: map[*yaml.Node]bool{}}
	if line, col, ok := badText(data); !ok {
		d.FaultAt(line, col, "the file is not UTF-8 text", "save it as UTF-8")
		return d
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := dec.Decode(&first); err != nil {
		if errors.Is(err, io.EOF) {
			d.FaultAt(1, 1, "the file is empty", "a file starts with: version: v1")
			return d
		}
		d.syntax(data, err)
		return d
	}
	err := dec.Decode(&second)
	switch {
	case err == nil:
		d.NodeFault(&second, "a second document begins here; a file must contain only one", "remove the line --- and what follows, or put it into a file of its own")
	case !errors.Is(err, io.EOF):
		d.syntax(data, err)
		return d
	}
	d.accept(first.Content[0])
	return d
}

// Syntax returns why a text is not YAML, or nil if it is.
func Syntax(name string, data []byte) Faults {
	if yaml.Unmarshal(data, new(yaml.Node)) == nil {
		return nil
	}
	return Parse(name, data).Faults()
}

// accept sets the root, which must be a mapping.
func (d *Document) accept(root *yaml.Node) {
	switch {
	case root.Kind == yaml.ScalarNode && root.Tag == "!!null":
		d.FaultAt(1, 1, "the file is empty", "a file starts with: version: v1")
	case root.Kind != yaml.MappingNode:
		d.NodeFault(root, "expected keys such as version, agents and teams, got "+KindOf(root), "a file starts with: version: v1")
	default:
		d.root = root
		folded(d, root)
	}
}

// folded reports entries of lists whose dash is indented more than those above, which YAML takes for a part of the text
// of the entry above.
func folded(d *Document, n *yaml.Node) {
	var all []*yaml.Node
	for _, c := range n.Content {
		folded(d, c)
		all = append(all, c)
		entry, rest, found := strings.Cut(c.Value, " - ")
		if !found || n.Kind != yaml.SequenceNode || c.Kind != yaml.ScalarNode || c.Style != 0 || c.Line >= len(d.lines) {
			continue
		}
		if next := d.lines[c.Line]; strings.HasPrefix(strings.TrimLeft(next, " "), "- ") {
			d.FaultAt(c.Line+1, indentOf(next)+1, "this entry is indented more than the one above", "indent its dash like the dashes of its neighbors")
			c.Value = entry
			for _, more := range strings.Split(rest, " - ") { // the entries that are meant
				all = append(all, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: more, Line: c.Line + 1, Column: indentOf(next) + 3})
			}
		}
	}
	n.Content = all
}

// syntax reports why a text is not YAML. The parser that reads files only names lines, often that before the cause; a
// newer version of it names the place.
func (d *Document) syntax(data []byte, err error) {
	var refused *yamlv4.LoadError
	if errors.As(yamlv4.Unmarshal(data, new(yamlv4.Node)), &refused) {
		line, col, message, hint := d.explain(refused)
		d.FaultAt(line, col, message, hint)
		return
	}
	line, message := lineOf(err)
	line = min(max(line, 1), len(d.lines))
	words, hint, _ := explanation(message)
	message, _, _ = strings.Cut(words, " '") // what the parser quotes may be a secret
	d.FaultAt(line, indentOf(d.lines[line-1])+1, message, hint)
}

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// lineOf returns the line and the words of an error of the parser that reads files, which counts the lines of errors
// about what it expected from 0.
func lineOf(err error) (line int, message string) {
	line, message = 1, err.Error()
	if m := yamlError.FindStringSubmatch(message); m != nil {
		message = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
		if strings.HasPrefix(message, "did not find expected") && m[1] != "" {
			line++
		}
	}
	return line, message
}

func indentOf(text string) int { return len(text) - len(strings.TrimLeft(text, " ")) }

// Hints of faults of the syntax.
const (
	hintQuotes = "check the indentation; put text with : ? , { or [ in it in quotes"
	hintIndent = `indent it like its neighbors; put text with quotes, brackets or ": " in it in quotes as a whole`
	hintComma  = "write a comma between entries, close each bracket, and put text with : ? , { or [ in it in quotes"
)

// explanations are what the parser finds wrong, by the beginning of its words, and what is said in place of them.
var explanations = []struct {
	says, message, hint string
	context             string // what the parser was reading; its beginning is named
}{
	{"mapping values are not allowed", "unexpected colon", `put text with ": " in it in quotes; a key needs a line of its own, indented like its neighbors, and a colon and a space after the key above`, ""},
	{"did not find expected key", "expected a key", hintIndent, "the mapping"},
	{"did not find expected '-' indicator", "expected a list entry", "begin it with a dash and a space; " + hintIndent, "the list"},
	{"did not find expected ','", "expected a comma or the closing bracket", hintComma, bracket},
	{"could not find expected ':'", "a colon is missing after a key", "write KEY: and a space before the value; put text of several lines in quotes, or below KEY: |", atContext},
	{"block sequence entries are not allowed", "a list cannot begin behind a key", "write it on the next line, or write [one, two]", ""},
	{"found a tab", "this line is indented with a tab", "indent it with spaces", ""},
	{"found unexpected end of stream", "this quote is never closed", "close it, or write the text without quotes", atContext},
	{"did not find expected node content", "a value is missing before this", "add it, or close the bracket that is open", ""},
	{"found unknown escape character", "unknown escape sequence in double quotes", `write \\ for a backslash, or put the value in single quotes`, ""},
	{"unknown anchor", "aliases are not supported", "write the value out, or put text that begins with * in quotes", ""},
}

const (
	// atContext says that the place of an error is where what the parser was reading begins.
	atContext = "at"
	bracket   = "the bracket"
)

// end returns the line and the column of the last character of the text that is not a space.
func (t *Text) end() (line, col int) {
	for i, text := range slices.Backward(t.lines) {
		if text = strings.TrimRight(text, " \t"); text != "" {
			return i + 1, utf8.RuneCountInString(text)
		}
	}
	return 1, 1
}

// explanation returns what is said in place of the words of the parser.
func explanation(says string) (message, hint, context string) {
	for _, x := range explanations {
		if strings.HasPrefix(says, x.says) {
			return x.message, x.hint, x.context
		}
	}
	return "not YAML: " + says, hintQuotes, ""
}

// explain returns the place of an error of the parser, and what it says to users.
func (t *Text) explain(e *yamlv4.LoadError) (line, col int, message, hint string) {
	place := e.Mark
	message, hint, context := explanation(e.Message)
	last, width := t.end()
	switch atEnd := place.Line > last || place.Line == last && place.Column > width; {
	case context == atContext && e.ContextMark.Line > 0:
		place = e.ContextMark
	case atEnd && context == bracket:
		place, message = e.ContextMark, "this bracket is never closed"
	case atEnd:
		place.Line, place.Column = last, width+1
	}
	line = min(max(place.Line, 1), len(t.lines))
	text := t.lines[line-1]
	col = min(max(place.Column, 1), utf8.RuneCountInString(text)+1)
	if c := text[byteAt(text, col):]; strings.HasPrefix(e.Message, "found character that cannot start") && c != "" {
		if message, hint = "a value cannot begin with "+strconv.Quote(c[:1]), "put the value in quotes"; c[0] == '\t' {
			message, hint = "this line is indented with a tab", "indent it with spaces"
		}
	}
	if strings.HasPrefix(e.Message, "mapping values") && line > 1 && indentOf(t.lines[line-2]) == indentOf(text) {
		if m := unspaced.FindStringSubmatch(t.lines[line-2]); m != nil {
			return line - 1, utf8.RuneCountInString(m[1]) + 1, "a space is missing after the colon of " + strconv.Quote(m[2]), "write " + m[2] + ": and a space before the value"
		}
	}
	if strings.Contains(text, ": {{") {
		message, hint = "a value that begins with {{ must be in quotes", `put the value in quotes: "{{...}}"`
	}
	if context != "" && context != atContext && e.ContextMark.Line > 0 && e.ContextMark.Line < line {
		hint += "; " + context + " begins in line " + strconv.Itoa(e.ContextMark.Line)
	}
	return line, col, message, hint
}

// unspaced matches a line with a key, a colon and a value without a space before it.
var unspaced = regexp.MustCompile(`^( *)([A-Za-z_]+):[^\s:/][^:]*$`)

// badText returns the position of the first byte that is not valid UTF-8. ok is true if all of data
// is valid.
func badText(data []byte) (line, col int, ok bool) {
	if utf8.Valid(data) {
		return 0, 0, true
	}
	line, col = 1, 1
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if r == utf8.RuneError && n == 1 {
			break
		}
		col++
		if r == '\n' {
			line, col = line+1, 1
		}
		data = data[n:]
	}
	return line, col, false
}

// KindOf describes a node for a message.
func KindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.Tag {
	case "!!null":
		return "nothing"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return n.Value
	}
	return "text"
}
