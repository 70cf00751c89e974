package cli

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plain is a writer for terminals: it replaces control characters. Each Write must contain complete
// characters.
type plain struct{ to io.Writer }

// Write writes printable text.
func (p plain) Write(b []byte) (int, error) {
	if _, err := io.WriteString(p.to, printable(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// printable replaces each control character except newline and tab by U+FFFD.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\n' && c != '\t' {
			return utf8.RuneError
		}
		return c
	}, strings.ReplaceAll(text, "\r\n", "\n"))
}

// line returns a text from outside the program as a single line, so that it cannot imitate another
// line of the output.
func line(text string) string { return strings.ReplaceAll(printable(text), "\n", " ") }

// below returns a text from outside the program with all lines but the first indented. The first
// one follows other text.
func below(text string) string { return strings.ReplaceAll(printable(text), "\n", "\n  ") }

// lined is an error whose text is a single line.
type lined struct{ error }

// Error returns the text of the error as a single line.
func (e lined) Error() string { return line(e.error.Error()) }

// Unwrap returns the original error.
func (e lined) Unwrap() error { return e.error }
