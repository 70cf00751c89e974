package source

import (
	"errors"
	"io/fs"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Missing is a variable or secret file that a value refers to and that is not available.
type Missing struct {
	Node *yaml.Node
	Path []any  // keys and indexes from the root
	Name string // the reference as written
	Lack string // what is wrong with it
	Hint string // what to do about it

	Secret bool // the value is a secret
}

var reference = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)

// Values of Missing.Lack.
const (
	Unset   = "is not set"
	notText = "is not UTF-8"
)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

var (
	// unbraced matches a variable as shells write it.
	unbraced = regexp.MustCompile(`^\$[A-Z]+(_[A-Z0-9]+)+$`)
	// variableOfSecret matches the name of a variable in the place of a secret.
	variableOfSecret = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*_(KEY|TOKEN|SECRET|PASSWORD)$`)
)

// Expand replaces ${NAME}, ${NAME:-default} and ${file:PATH} in all values; $${ is an escaped ${.
// It returns the variables and files that are missing, which are faults only if something that is
// used needs them.
func (d *Document) Expand(l Lookup) []Missing { return d.expand(d.root, nil, l) }

// expand is Expand for a value at a path.
func (d *Document) expand(n *yaml.Node, path []any, l Lookup) []Missing {
	var out []Missing
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			out = append(out, d.expand(n.Content[i+1], append(path[:len(path):len(path)], n.Content[i].Value), l)...)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			out = append(out, d.expand(item, append(path[:len(path):len(path)], i), l)...)
		}
	case yaml.ScalarNode:
		if unbraced.MatchString(n.Value) || isSecretPath(path) && variableOfSecret.MatchString(n.Value) {
			d.NodeFault(n, "this is the name of a variable, not its value", "write ${NAME}")
			d.damage(n)
			return nil
		}
		if !strings.Contains(n.Value, "${") {
			return nil
		}
		l.secret = isSecretPath(path)
		n.Value = reference.ReplaceAllStringFunc(n.Value, func(s string) string {
			value, gap := d.resolve(n, s, l)
			if gap != nil {
				gap.Path, gap.Secret = path, l.secret
				parent, _ := d.Find(path[:len(path)-1]...)
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

// Lookup holds the sources of variables and files.
type Lookup struct {
	Env   func(string) (string, bool)
	File  func(string) ([]byte, error)
	Found func(file string) // called for each file with a secret

	secret bool // the value is a secret
}

// maxSecret is the maximum size of a file with a secret, in bytes.
const maxSecret = 64 << 10

// readReferenced returns the text of a file without its trailing line breaks, or what is wrong with it
// and what to do about it.
func (l Lookup) readReferenced(file string) (text, lack, hint string) {
	data, err := l.File(file)
	if l.secret && err == nil {
		l.Found(file)
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
func (d *Document) resolve(n *yaml.Node, s string, l Lookup) (string, *Missing) {
	if strings.HasPrefix(s, "$$") {
		return s[1:], nil
	}
	if !strings.HasSuffix(s, "}") {
		d.NodeFault(n, "unterminated variable reference", "close it with }; write $${ for a literal ${")
		d.damage(n)
		return "", nil
	}
	name := s[2 : len(s)-1]
	if file, ok := strings.CutPrefix(name, "file:"); ok {
		text, lack, hint := l.readReferenced(file)
		if lack != "" {
			return "", &Missing{Node: n, Name: "${file:" + file + "}", Lack: lack, Hint: hint}
		}
		return text, nil
	}
	name, fallback, optional := strings.Cut(name, ":-")
	if !variable.MatchString(name) {
		hint := "write ${NAME}, ${NAME:-default} or ${file:PATH}; write $${ for a literal ${"
		if strings.HasPrefix(name, "{") {
			hint = "write {{NAME}} without $ for a value of the run"
		}
		d.NodeFault(n, s+" is not a valid reference", hint)
		return "", nil
	}
	if value, ok := l.Env(name); ok && !utf8.ValidString(value) {
		return "", &Missing{Node: n, Name: name, Lack: notText, Hint: "write its value in UTF-8"}
	} else if ok && value != "" {
		return value, nil
	}
	if optional {
		return fallback, nil
	}
	return "", &Missing{Node: n, Name: name, Lack: Unset, Hint: "set it, or write ${" + name + ":-default}"}
}
