package config

import (
	"errors"
	"io/fs"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// missing is a variable or secret file that a value refers to and that is not available.
type missing struct {
	node *yaml.Node
	path []any  // keys and indexes from the root
	name string // the reference as written
	lack string // what is wrong with it
	hint string // what to do about it
}

var reference = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)

// Values of missing.lack.
const (
	unset   = "is not set"
	notText = "is not UTF-8"
)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${NAME}, ${NAME:-default} and ${file:PATH} in all values; $${ is an escaped ${.
// It returns the variables and files that are missing, which are faults only if something that is
// used needs them.
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
		lookup.secret = isSecretPath(path)
		n.Value = reference.ReplaceAllStringFunc(n.Value, func(s string) string {
			value, gap := d.resolve(n, s, lookup)
			if gap != nil {
				gap.path = path
				parent, _ := d.at(path[:len(path)-1]...)
				d.damage(n, parent)
				out = append(out, *gap)
			}
			if !strings.HasPrefix(s, "$$") && !strings.HasSuffix(s, ":-"+value+"}") {
				d.conceal(value)
			}
			return value
		})
		n.Tag = "" // the type depends on the replaced text
	}
	return out
}

// lookup holds the sources of variables and files.
type lookup struct {
	env    func(string) (string, bool)
	file   func(string) ([]byte, error)
	found  func(file string) // called for each file with a secret
	secret bool              // the value is a secret
}

// maxSecret is the maximum size of a file with a secret, in bytes.
const maxSecret = 64 << 10

// readReferenced returns the text of a file without its trailing line breaks, or what is wrong with it
// and what to do about it.
func (l lookup) readReferenced(file string) (text, lack, hint string) {
	data, err := l.file(file)
	if l.secret && err == nil {
		l.found(file)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", "cannot be read", "allow the user of the server to read it"
	case errors.Is(err, errIrregular):
		return "", "cannot be read", "name a regular file, not a pipe or device"
	case errors.Is(err, errTooLarge):
		return "", "is too large", "name a smaller file"
	case err != nil:
		return "", "cannot be read", "create the file, or correct the path; it is relative to this file"
	case l.secret && len(data) > maxSecret:
		return "", "is too large", "a secret has at most 64 KiB; name the file that holds only the secret"
	case !utf8.Valid(data):
		return "", notText, "write the file in UTF-8"
	}
	text = strings.TrimRight(string(data), "\r\n")
	if l.secret && text == "" {
		return "", "is empty", "write the secret into the file"
	}
	return text, "", ""
}

// resolve returns the value of a single reference.
func (d *document) resolve(n *yaml.Node, s string, l lookup) (string, *missing) {
	if strings.HasPrefix(s, "$$") {
		return s[1:], nil
	}
	if !strings.HasSuffix(s, "}") {
		d.fault(n, "unterminated variable reference", "close it with }; write $${ for a literal ${")
		d.damage(n)
		return "", nil
	}
	name := s[2 : len(s)-1]
	if file, ok := strings.CutPrefix(name, "file:"); ok {
		text, lack, hint := l.readReferenced(file)
		if lack != "" {
			return "", &missing{node: n, name: "${file:" + file + "}", lack: lack, hint: hint}
		}
		return text, nil
	}
	name, fallback, optional := strings.Cut(name, ":-")
	if !variable.MatchString(name) {
		d.fault(n, s+" is not a valid reference", "write ${NAME}, ${NAME:-default} or ${file:PATH}; write $${ for a literal ${")
		return "", nil
	}
	if value, ok := l.env(name); ok && !utf8.ValidString(value) {
		return "", &missing{node: n, name: name, lack: notText, hint: "write its value in UTF-8"}
	} else if ok && value != "" {
		return value, nil
	}
	if optional {
		return fallback, nil
	}
	return "", &missing{node: n, name: name, lack: unset, hint: "set it, or write ${" + name + ":-default}"}
}
