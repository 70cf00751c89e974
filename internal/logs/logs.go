// Package logs makes the logger of the commands. Messages are constant texts of this program. Texts of other
// parties, which callers, agents and webhooks choose, are only in fields.
package logs

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

// maxField is how long the text of a field may be, in bytes. The rest is cut off.
const maxField = 2 << 10

// New returns a logger that writes lines to w: JSON, or text for a terminal. Texts of fields are cut after
// 2 KiB, and an entry is one line without characters that could change what a terminal shows. It is safe
// for concurrent use.
func New(w io.Writer, level zapcore.LevelEnabler, json bool) *zap.Logger {
	c := zap.NewProductionEncoderConfig()
	c.EncodeTime = zapcore.RFC3339TimeEncoder
	e := zapcore.NewConsoleEncoder(c)
	if json {
		e = zapcore.NewJSONEncoder(c)
	}
	return zap.New(zapcore.NewCore(encoder{e}, zapcore.Lock(zapcore.AddSync(w)), level))
}

// encoder cuts texts of fields and cleans what it has encoded.
type encoder struct{ zapcore.Encoder }

// Clone implements zapcore.Encoder.
func (e encoder) Clone() zapcore.Encoder { return encoder{e.Encoder.Clone()} }

// AddString implements zapcore.ObjectEncoder.
func (e encoder) AddString(key, text string) { e.Encoder.AddString(key, cut(text)) }

// AddByteString implements zapcore.ObjectEncoder.
func (e encoder) AddByteString(key string, text []byte) { e.AddString(key, string(text)) }

// EncodeEntry implements zapcore.Encoder.
func (e encoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	with := encoder{e.Encoder.Clone()}
	for _, f := range fields {
		f.AddTo(with)
	}
	line, err := with.Encoder.EncodeEntry(entry, nil)
	if err != nil {
		return nil, err
	}
	if text := clean(line.Bytes()); text != nil {
		line.Reset()
		_, _ = line.Write(text) // a Buffer returns no error
	}
	return line, nil
}

// cut returns a text that is cut after maxField bytes.
func cut(text string) string {
	if len(text) <= maxField {
		return text
	}
	end := maxField
	for end > maxField-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// clean replaces misleading characters of an encoded entry by U+FFFD, and keeps the newline at its end. It
// returns nil if the entry has no such characters. The result of a JSON entry is valid JSON, because JSON
// allows these characters only in strings.
func clean(entry []byte) []byte {
	text := bytes.TrimSuffix(entry, []byte("\n"))
	if !bytes.ContainsFunc(text, misleads) {
		return nil
	}
	return append([]byte(strings.Map(func(c rune) rune {
		if misleads(c) {
			return utf8.RuneError
		}
		return c
	}, string(text))), '\n')
}

// misleads reports whether a character can imitate another line or change what a terminal shows.
func misleads(c rune) bool {
	return unicode.IsControl(c) && c != '\t' || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == '\u2029'
}
