package config

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// missing is a variable or secret file that a value needs and that is not there.
type missing struct {
	node *yaml.Node
	path []any  // keys and indexes from the root
	name string // as it is written
	lack string // what is wrong with it
	why  string // what to do
}

var reference = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)

// What is wrong with variables and files.
const (
	unset   = "is not set"
	notText = "is not UTF-8"
)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${NAME}, ${NAME:-default} and ${file:PATH} in all values;
// $${ stands for ${ itself. What is missing is returned: it is a fault only
// where something used needs it.
func (d *document) expand(n *yaml.Node, path []any, lookup lookup) []missing {
	var out []missing
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			out = append(out, d.expand(n.Content[i+1], append(path[:len(path):len(path)], n.Content[i].Value), lookup)...)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			out = append(out, d.expand(item, append(path[:len(path):len(path)], i), lookup)...)
		}
	case yaml.ScalarNode:
		if !strings.Contains(n.Value, "${") {
			return nil
		}
		n.Value = reference.ReplaceAllStringFunc(n.Value, func(s string) string {
			value, gap := d.resolve(n, s, lookup)
			if gap != nil {
				gap.path = path
				parent, _ := d.at(path[:len(path)-1]...)
				d.damage(n, parent)
				out = append(out, *gap)
			}
			return value
		})
		n.Tag = "" // what it is shows only now
	}
	return out
}

// lookup is where values of variables and files come from.
type lookup struct {
	env  func(string) (string, bool)
	file func(string) ([]byte, error)
}

// resolve returns what one reference stands for.
func (d *document) resolve(n *yaml.Node, s string, l lookup) (string, *missing) {
	if strings.HasPrefix(s, "$$") {
		return s[1:], nil
	}
	if !strings.HasSuffix(s, "}") {
		d.fault(n, "a reference to a variable has no end", "close it with }; $${ stands for ${")
		d.damage(n)
		return "", nil
	}
	name := s[2 : len(s)-1]
	if file, ok := strings.CutPrefix(name, "file:"); ok {
		data, err := l.file(file)
		if err != nil {
			return "", &missing{node: n, name: "${file:" + file + "}", lack: "cannot be read", why: "create the file, or correct the path; it is relative to this file"}
		}
		if !utf8.Valid(data) {
			return "", &missing{node: n, name: "${file:" + file + "}", lack: notText, why: "write the file in UTF-8"}
		}
		return strings.TrimRight(string(data), "\r\n"), nil
	}
	name, fallback, optional := strings.Cut(name, ":-")
	if !variable.MatchString(name) {
		d.fault(n, s+" is no variable", "write ${NAME}, ${NAME:-default} or ${file:PATH}; $${ stands for ${")
		return "", nil
	}
	if value, ok := l.env(name); ok && !utf8.ValidString(value) {
		return "", &missing{node: n, name: name, lack: notText, why: "write its value in UTF-8"}
	} else if ok && value != "" {
		return value, nil
	}
	if optional {
		return fallback, nil
	}
	return "", &missing{node: n, name: name, lack: unset, why: "set it, or write ${" + name + ":-default}"}
}
