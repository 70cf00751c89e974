package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parse parses a file into nodes. If the document returned has no root, it has faults.
func parse(file string, data []byte) *document {
	d := &document{Text: NewText(data, nil), file: file, damaged: map[*yaml.Node]bool{}}
	if line, col, ok := badText(data); !ok {
		d.faultAt(line, col, "the file is not UTF-8 text", "save it as UTF-8")
		return d
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := dec.Decode(&first); err != nil {
		if errors.Is(err, io.EOF) {
			d.faultAt(1, 1, "the file is empty", "a file starts with: version: v2")
			return d
		}
		d.syntax(err)
		return d
	}
	err := dec.Decode(&second)
	switch {
	case err == nil:
		d.fault(&second, "a second document begins here; a file must contain only one", "remove the line --- and what follows, or put it into a file of its own")
	case !errors.Is(err, io.EOF):
		d.syntax(err)
		return d
	}
	d.accept(first.Content[0])
	return d
}

// accept sets the root, which must be a mapping.
func (d *document) accept(root *yaml.Node) {
	switch {
	case root.Kind == yaml.ScalarNode && root.Tag == "!!null":
		d.faultAt(1, 1, "the file is empty", "a file starts with: version: v2")
	case root.Kind != yaml.MappingNode:
		d.fault(root, "expected keys such as version, agents and teams, got "+kindOf(root), "a file starts with: version: v2")
	default:
		d.root = root
		d.declare(root)
	}
}

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// syntax reports why a text is not YAML. The parser's error names the place where it stopped, often
// far from the cause, so it is only used if findMistake finds no cause.
func (d *document) syntax(err error) {
	if m := findMistake(d.lines); m != nil {
		d.faultAt(m.line, m.col, m.message, m.hint)
		return
	}
	line, message := 1, err.Error()
	if m := yamlError.FindStringSubmatch(message); m != nil {
		if m[1] != "" {
			line, _ = strconv.Atoi(m[1])
		}
		message = m[2]
	}
	message, _, _ = strings.Cut(message, " '") // what the parser quotes may be a secret
	line = min(max(line, 1), len(d.lines))
	d.faultAt(line, indentOf(d.lines[line-1])+1, "not YAML: "+message, "check the indentation and the quotes of this line and the one above")
}

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

// kindOf describes a node for a message.
func kindOf(n *yaml.Node) string {
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
