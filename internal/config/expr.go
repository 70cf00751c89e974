package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
)

// scheduler reports what a scheduler finds wrong with its rules or steps, below
// path. Names are not reported where what they could name is damaged itself.
func (k *checker) scheduler(err error, complete bool, path ...any) {
	for _, err := range joined(err) {
		var f *team.Fault
		if !errors.As(err, &f) {
			n, _ := k.at(path...)
			k.fault(n, err.Error(), "")
			continue
		}
		at := path
		if strings.HasPrefix(f.Path, "members[") { // beside the mode's key
			at = path[:2]
		}
		k.expression(f.Subject, f.Err, complete, append(slices.Clone(at), steps(f.Path)...)...)
	}
}

// joined returns the errors that were joined.
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

// steps reads a path such as rules[2].next[0].
func steps(path string) []any {
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

// expression reports a fault at its place in the text below path.
func (k *checker) expression(subject string, err error, complete bool, path ...any) {
	n, _ := k.at(path...)
	if k.damaged[n] || k.reported(n) {
		return
	}
	var e *expr.Error
	if !errors.As(err, &e) {
		if k.refused(path) {
			return
		}
		message, hint := cutHint(err.Error())
		k.fault(n, subject+": "+message, cmp.Or(hint, "correct or remove it; examples/ has files that work"))
		return
	}
	switch {
	case e.Unknown == "":
		message, hint := cutHint(plain(e.Message))
		k.within(n, e.Offset, subject+": "+message, cmp.Or(hint, "check names, types, brackets and quotes; equal is =="))
	case complete:
		k.within(n, e.Offset, subject+": "+e.Message, suggestAll(e.Unknown, e.Known))
	}
}

// refused reports whether an entry of a list around path is a fault as a whole:
// what its parts contradict follows from that.
func (k *checker) refused(path []any) bool {
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

// reported reports whether there is a fault at a node already.
func (d *document) reported(n *yaml.Node) bool {
	return slices.ContainsFunc(d.faults, func(f Fault) bool { return f.Line == n.Line && f.Col == n.Column })
}

// plain takes the parser's words, and the text that it quotes, out of a syntax error.
func plain(message string) string {
	message, syntax := strings.CutPrefix(message, "Syntax error: ")
	switch {
	case !syntax:
		return message
	case strings.HasPrefix(message, "mismatched input '<EOF>'"):
		return "it ends where a value belongs"
	}
	message, _, _ = strings.Cut(message, " '")
	return strings.TrimSuffix(message, ":")
}

// suggestAll names what was probably meant and everything that is known.
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

// within reports at a place inside a text, counted in bytes, if the file shows
// the text as it is; else where the text begins.
func (k *checker) within(n *yaml.Node, offset int, message, hint string) {
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
	if at > len(k.lines) || !strings.HasPrefix(from(k.lines[at-1], start), text) {
		k.fault(n, message, hint)
		return
	}
	k.faultAt(at, start+len([]rune(n.Value[first:len(before)])), message, hint)
}

// from returns a line from its col-th character on.
func from(line string, col int) string {
	r := []rune(line)
	return string(r[min(max(col-1, 0), len(r)):])
}
