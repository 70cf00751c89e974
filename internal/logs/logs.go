// Package logs makes the logger of the commands. Texts of other parties, which callers, agents and webhooks
// choose, are only in fields: each field is at most 2 KiB, and has no characters that could imitate
// another line or change what a terminal shows.
package logs

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// maxField is how long the text of a field may be, in bytes. The rest is cut off.
const maxField = 2 << 10

// New returns a logger that writes lines to w: JSON, or text for a terminal. It is safe for concurrent use.
func New(w io.Writer, level zapcore.LevelEnabler, json bool) *zap.Logger {
	c := zap.NewProductionEncoderConfig()
	c.EncodeTime = zapcore.RFC3339TimeEncoder
	encoder := zapcore.NewConsoleEncoder(c)
	if json {
		encoder = zapcore.NewJSONEncoder(c)
	}
	return zap.New(cleaner{zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level)})
}

// cleaner is a core that cleans the texts of fields.
type cleaner struct{ zapcore.Core }

// With implements zapcore.Core.
func (c cleaner) With(fields []zapcore.Field) zapcore.Core {
	return cleaner{c.Core.With(cleanAll(fields))}
}

// Check implements zapcore.Core.
func (c cleaner) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c cleaner) Write(e zapcore.Entry, fields []zapcore.Field) error {
	e.Message = clean(e.Message)
	return c.Core.Write(e, cleanAll(fields))
}

// cleanAll returns the fields with clean texts. It does not change them in place, because callers may
// use them for other loggers.
func cleanAll(fields []zapcore.Field) []zapcore.Field {
	out := make([]zapcore.Field, len(fields))
	for i, f := range fields {
		out[i] = cleanField(f)
	}
	return out
}

func cleanField(f zapcore.Field) zapcore.Field {
	switch v := f.Interface.(type) {
	case error:
		if f.Type == zapcore.ErrorType {
			return zap.NamedError(f.Key, errors.New(clean(textOf(v.Error))))
		}
	case fmt.Stringer:
		if f.Type == zapcore.StringerType {
			return zap.String(f.Key, clean(textOf(v.String)))
		}
	case []byte:
		if f.Type == zapcore.ByteStringType {
			return zap.String(f.Key, clean(string(v)))
		}
	case zapcore.ArrayMarshaler:
		return zap.Array(f.Key, array{v})
	}
	if f.Type == zapcore.StringType {
		f.String = clean(f.String)
	}
	return f
}

// textOf returns what a method of a value from elsewhere returns. The method may panic, for example
// because the value is a nil pointer.
func textOf(method func() string) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprintf("no text: %v", r)
		}
	}()
	return method()
}

// array is an array whose texts are cleaned.
type array struct{ zapcore.ArrayMarshaler }

// MarshalLogArray implements zapcore.ArrayMarshaler.
func (a array) MarshalLogArray(e zapcore.ArrayEncoder) error {
	return a.ArrayMarshaler.MarshalLogArray(texts{e})
}

// texts is an encoder of arrays that cleans texts.
type texts struct{ zapcore.ArrayEncoder }

// AppendString implements zapcore.ArrayEncoder.
func (t texts) AppendString(text string) { t.ArrayEncoder.AppendString(clean(text)) }

// clean returns a text of at most maxField bytes, in which characters that are not shown as what they are,
// such as control characters and those that reverse the direction of text, are replaced by U+FFFD.
func clean(text string) string {
	if len(text) > maxField {
		end := maxField
		for end > maxField-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end] + "…"
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\n' && c != '\t' || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == '\u2029' {
			return utf8.RuneError
		}
		return c
	}, text)
}
