package config

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
)

// scheduler reports the errors a scheduler returned for its rules or steps, which are at path. If
// complete is false, the names an expression can use are not all known, so unknown names are not
// reported.
func (k *checker) scheduler(err error, complete bool, path ...any) {
	for _, err := range joined(err) {
		var f *team.Fault
		if !errors.As(err, &f) {
			n, _ := k.at(path...)
			k.fault(n, err.Error(), "")
			continue
		}
		at := path
		if strings.HasPrefix(f.Path, "members[") { // members are a key of the team, not of the mode
			at = path[:2]
		}
		k.expression(f.Subject, f.Err, complete, append(slices.Clone(at), parsePath(f.Path)...)...)
	}
}

// joined returns the errors that errors.Join combined, or err alone.
func joined(err error) []error {
	if err == nil {
		return nil
	}
	if _, single := err.(*team.Fault); single { //nolint:errorlint // this very error
		return []error{err}
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// parsePath parses a path such as rules[2].next[0] into keys and indexes.
func parsePath(path string) []any {
	var out []any
	for _, part := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		if i, err := strconv.Atoi(part); err == nil {
			out = append(out, i)
		} else {
			out = append(out, part)
		}
	}
	return out
}

// expression reports an error of an expression at its position within the text at path.
func (k *checker) expression(subject string, err error, complete bool, path ...any) {
	n, _ := k.at(path...)
	if k.damaged[n] || k.reported(n) {
		return
	}
	var e *expr.Error
	if !errors.As(err, &e) {
		if k.entryHasFault(path) {
			return
		}
		message, hint := cutHint(err.Error())
		k.fault(n, subject+": "+message, cmp.Or(hint, "correct or remove it; examples/ has files that work"))
		return
	}
	switch {
	case e.Unknown == "":
		message, hint := cutHint(withoutParserDetail(e.Message))
		if assigns.MatchString(n.Value) {
			message, hint = "= is not an operator", "write == for equal"
		}
		k.faultInText(n, e.Offset, subject+": "+message, cmp.Or(hint, "check names, types, brackets and quotes; equal is =="))
	case complete:
		k.faultInText(n, e.Offset, subject+": "+e.Message, k.search(func() string { return suggestAll(e.Unknown, e.Known) }))
	}
}

// assigns matches an expression with a single equals sign outside of texts.
var assigns = regexp.MustCompile(`^(?:[^'"=<>!]|'[^']*'|"[^"]*"|[=<>!]=|[<>!][^='"])*=(?:[^=]|$)`)

// entryHasFault reports whether a list entry on path has a fault as a whole. Contradictions between
// its parts are then consequences of that fault.
func (k *checker) entryHasFault(path []any) bool {
	for i, step := range path {
		if _, item := step.(int); !item {
			continue
		}
		if n, found := k.at(path[:i+1]...); found && n.Kind == yaml.MappingNode && k.reported(n) {
			return true
		}
	}
	return false
}

// reported reports whether there already is a fault at a node.
func (d *document) reported(n *yaml.Node) bool {
	return slices.ContainsFunc(d.faults, func(f Fault) bool { return f.Line == n.Line && f.Col == n.Column })
}

// withoutParserDetail removes the parser's prefix, and the text that it quotes, from a syntax
// error.
func withoutParserDetail(message string) string {
	message, syntax := strings.CutPrefix(message, "Syntax error: ")
	switch {
	case !syntax:
		return message
	case strings.HasPrefix(message, "mismatched input '<EOF>'"):
		return "it ends where a value was expected"
	}
	message, _, _ = strings.Cut(message, " '")
	return strings.TrimSuffix(message, ":")
}

// suggestAll returns a hint that names the most similar known name and lists all known names.
func suggestAll(name string, known []string) string {
	if len(known) == 0 {
		return "nothing is known here; remove it"
	}
	hint := "known here: " + strings.Join(known, ", ")
	if near := nearest(name, known); near != "" {
		hint = fmt.Sprintf("did you mean %q? K%s", near, hint[1:])
	}
	return hint
}

// faultInText adds a fault at a byte offset within a text value. If the file does not show the text
// literally, for example because of escapes, the fault is placed where the value begins.
func (k *checker) faultInText(n *yaml.Node, offset int, message, hint string) {
	before := n.Value[:min(max(offset, 0), len(n.Value))]
	line := strings.Count(before, "\n")
	first := strings.LastIndexByte(before, '\n') + 1
	text, _, _ := strings.Cut(n.Value[first:], "\n")
	at, start := n.Line+line, n.Column
	switch n.Style {
	case yaml.DoubleQuotedStyle, yaml.SingleQuotedStyle:
		start++
	case yaml.LiteralStyle, yaml.FoldedStyle:
		at++
		if at <= len(k.lines) {
			source := k.lines[at-1]
			start = len(source) - len(strings.TrimLeft(source, " ")) + 1
		}
	}
	if at > len(k.lines) || !strings.HasPrefix(suffixAt(k.lines[at-1], start), text) {
		k.fault(n, message, hint)
		return
	}
	k.faultAt(at, start+len([]rune(n.Value[first:len(before)])), message, hint)
}

// suffixAt returns the rest of a line from column col, counted in characters from 1.
func suffixAt(line string, col int) string {
	r := []rune(line)
	return string(r[min(max(col-1, 0), len(r)):])
}
