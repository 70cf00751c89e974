// Package console has what all commands share: the terminal that they print to, and the server that they call.
package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/internal/logs"
	"github.com/agentteams/team-server/internal/wire"
)

// Console is where commands print. Data is written to Out, everything else to Talk.
type Console struct {
	Out, Talk io.Writer
	// In is the standard input; nil is treated as an error when a command reads it.
	In io.Reader
	// Terminal says that a person reads Talk and writes In.
	Terminal bool
	// JSON selects JSON output, and Wide text with more columns.
	JSON, Wide bool
	// Level is the log level; nil means the default of the command.
	Level *zapcore.Level
}

// UsageError is an error in the command line.
type UsageError struct {
	Err error
	// Command is the command whose help says more, such as team-server run; "" means that of the program.
	Command string
}

// Error returns the text of Err.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e UsageError) Unwrap() error { return e.Err }

var (
	// ErrFailed is returned by a command whose failure was already printed.
	ErrFailed = errors.New("failed")
	// ErrInterrupted is returned by a command that was ended by a signal.
	ErrInterrupted = errors.New("interrupted")
)

// Usagef returns a UsageError with a formatted text.
func Usagef(format string, args ...any) error { return UsageError{Err: fmt.Errorf(format, args...)} }

// Sayf prints a line to Talk.
func (c *Console) Sayf(format string, args ...any) { fmt.Fprintf(Plain{c.Talk}, format+"\n", args...) }

// MaxInput is the maximum size of the standard input and of files to send, in bytes.
const MaxInput = 16 << 20

// Read reads the standard input without its trailing newline.
func (c *Console) Read() (string, error) {
	if c.In == nil {
		return "", Usagef("there is no standard input to read")
	}
	b, err := io.ReadAll(io.LimitReader(c.In, MaxInput+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("reading standard input: %w", err)
	case len(b) > MaxInput:
		return "", Usagef("standard input is larger than %d bytes", MaxInput)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}

// Log returns a logger that writes lines of text to Talk, or JSON with -o json. level is the level unless Level is set.
func (c *Console) Log(level zapcore.Level) *zap.Logger {
	if c.Level != nil {
		level = *c.Level
	}
	return logs.New(c.Talk, level, c.JSON)
}

// Text returns the writer for data in text form.
func (c *Console) Text() io.Writer { return Plain{c.Out} }

// Print prints a message as one line of JSON.
func (c *Console) Print(m proto.Message) error {
	data, err := wire.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.Out, "%s\n", data)
	return err
}

// PrintAll prints messages by their names as one line of JSON.
func (c *Console) PrintAll(by map[string]proto.Message) error {
	all := map[string]json.RawMessage{}
	for name, m := range by {
		data, err := wire.Marshal(m)
		if err != nil {
			return err
		}
		all[name] = data
	}
	return json.NewEncoder(c.Out).Encode(all)
}

// Table prints a list with a line for each entry, or as JSON.
func Table[M proto.Message](c *Console, list []M, head string, row func(M) []string) error {
	if !c.JSON {
		return Columns(c, list, head, row)
	}
	for _, m := range list {
		if err := c.Print(m); err != nil {
			return err
		}
	}
	return nil
}

// Lines prints each entry of a list as a line of JSON.
func Lines[T any](c *Console, list []T) error {
	out := json.NewEncoder(c.Out)
	out.SetEscapeHTML(false)
	for _, one := range list {
		if err := out.Encode(one); err != nil {
			return err
		}
	}
	return nil
}

// Columns prints a list as text, one line for each entry. The texts of a row must be lines; see Line.
func Columns[T any](c *Console, list []T, head string, row func(T) []string) error {
	w := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	for _, m := range list {
		fmt.Fprintln(w, strings.Join(row(m), "\t"))
	}
	return w.Flush()
}

// Plain is a writer for terminals: it replaces control characters. Each Write must contain complete
// characters.
type Plain struct{ To io.Writer }

// Write writes printable text.
func (p Plain) Write(b []byte) (int, error) {
	if _, err := io.WriteString(p.To, Printable(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Printable replaces each control character except newline and tab by U+FFFD.
func Printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\n' && c != '\t' {
			return utf8.RuneError
		}
		return c
	}, strings.ReplaceAll(text, "\r\n", "\n"))
}

// Line returns a text from outside the program as a single line, so that it cannot imitate another
// line of the output.
func Line(text string) string { return strings.ReplaceAll(Printable(text), "\n", " ") }

// Below returns a text from outside the program with all lines but the first indented. The first
// one follows other text.
func Below(text string) string { return strings.ReplaceAll(Printable(text), "\n", "\n  ") }

var plainWord = regexp.MustCompile(`^[A-Za-z0-9._~:/@%+=-]+$`)

// Word quotes a text as a single shell word. Ids come from other servers, and users paste the commands that are shown.
func Word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Enum returns a value of an enum in lower case without its prefix.
func Enum(v fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(v.String(), prefix))
}
