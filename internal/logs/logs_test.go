package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// nilStringer is a Stringer that panics if it is nil, as zap allows.
type nilStringer struct{ name string }

func (n *nilStringer) String() string { return n.name }

// hostile has what changes a terminal or imitates a line: CR and LF, an escape sequence in both forms, an
// override of the direction of text, a separator of lines, and invalid UTF-8.
const hostile = "one\r\n{\"level\":\"error\"}\x1b[2J\u009b2J\u202egnp.exe\u2066\u2028two\xff\x00"

// TestT_41_OneLine logs hostile texts in each kind of field. A line has each of them, without what could
// imitate another one.
func TestT_41_OneLine(t *testing.T) {
	long := strings.Repeat("ä", 1<<20)
	fields := []zap.Field{
		zap.String("text", hostile), zap.Error(errors.New(hostile)), zap.ByteString("bytes", []byte(hostile)),
		zap.Strings("list", []string{"fine", hostile}), zap.Stringer("named", &nilStringer{hostile}), zap.Stringer("nil", (*nilStringer)(nil)),
		zap.String("long", long), zap.Errors("errors", []error{errors.New(hostile)}), zap.ByteStrings("lists", [][]byte{[]byte(hostile)}), zap.Dict("dict", zap.String("in", hostile)), zap.Any("any", struct{ In string }{hostile}), zap.Int("number", 7), zap.Skip(),
	}
	for _, asJSON := range []bool{true, false} {
		var b bytes.Buffer
		log := New(&b, zapcore.InfoLevel, asJSON)
		log.Info("before"+hostile, fields...)
		log.With(fields[0]).Info("with")
		log.Debug("not enabled", fields...)
		text := b.String()
		if got, want := strings.Count(text, "\n"), 2; asJSON && got != want {
			t.Errorf("%d lines, want %d:\n%s", got, want, text)
		}
		if !utf8.ValidString(text) || strings.ContainsAny(text, "\r\x1b\u009b\u202e\u2066\u2028\x00") {
			t.Errorf("hostile characters are left: %q", text)
		}
		if len(text) > 16<<10 {
			t.Errorf("%d bytes", len(text))
		}
		if !asJSON {
			continue
		}
		first, _, _ := strings.Cut(text, "\n")
		var line struct {
			Text, Error, Bytes, Named, Long string
			List, Errors                    []any
			Number                          int
		}
		if err := json.Unmarshal([]byte(first), &line); err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string]string{"text": line.Text, "error": line.Error, "bytes": line.Bytes, "named": line.Named, "list": line.List[1].(string)} {
			if !strings.HasPrefix(got, "one") || !strings.Contains(got, "two") {
				t.Errorf("%s is %q", name, got)
			}
		}
		if len(line.Long) > maxField+len("…") || !strings.HasSuffix(line.Long, "ä…") || line.Number != 7 || len(line.Errors) != 1 {
			t.Errorf("%+v", line)
		}
	}
}
