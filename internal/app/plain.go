package app

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plain writes text for people, who may sit at a terminal: what could steer that is
// not passed on. A piece of text must not end within a character.
type plain struct{ to io.Writer }

// Write writes printable text.
func (p plain) Write(b []byte) (int, error) {
	if _, err := io.WriteString(p.to, printable(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// printable is a text with U+FFFD for each control character but newline and tab.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\n' && c != '\t' {
			return utf8.RuneError
		}
		return c
	}, strings.ReplaceAll(text, "\r\n", "\n"))
}

// line is a text of others where one line is meant: it cannot begin a line that looks
// like one of ours.
func line(text string) string { return strings.ReplaceAll(printable(text), "\n", " ") }

// below is a text of others in several lines, of which the first stands behind
// something: the others are indented.
func below(text string) string { return strings.ReplaceAll(printable(text), "\n", "\n  ") }

// lined is an error in one line.
type lined struct{ error }

// Error is the text of the error.
func (e lined) Error() string { return line(e.error.Error()) }

// Unwrap returns the error.
func (e lined) Unwrap() error { return e.error }
