package secret_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.yaml.in/yaml/v3"

	"github.com/agentteams/team-server/pkg/secret"
)

const canary = "canary-4711"

// holder has secrets where package fmt can call their methods, and where it cannot.
type holder struct {
	Open   secret.Secret
	hidden secret.Secret
	byName map[string]secret.Secret
	list   []secret.Secret
	deep   struct{ s *secret.Secret }
}

// fault is an error with a secret.
type fault struct{ key secret.Secret }

func (f fault) Error() string { return fmt.Sprintf("key %s is wrong", f.key) }

// TestT_42_NothingPrintsASecret: no format, encoder or logger does, wherever the secret is.
func TestT_42_NothingPrintsASecret(t *testing.T) {
	s := secret.New(canary)
	h := holder{Open: s, hidden: s, byName: map[string]secret.Secret{"a": s}, list: []secret.Secret{s}}
	h.deep.s = &s
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%s", "%q", "%+v", "%#v", "%x", "%X", "%d", "%t", "%p", "%T", "%10.3s"} {
		for _, v := range []any{s, &s, h, &h, []any{h}, fault{s}, errors.Join(fault{s}, errors.New("more"))} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
	}
	fmt.Fprintln(&out, s.String(), s, h)
	for _, encode := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
		for _, v := range []any{s, h.Open, h, map[string]any{"s": s}} {
			b, err := encode(v)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(b)
		}
	}
	if b, err := xml.Marshal(s); err != nil {
		t.Fatal(err)
	} else {
		out.Write(b)
	}
	for _, encoder := range []zapcore.Encoder{zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.NewConsoleEncoder(zapcore.EncoderConfig{})} {
		log := zap.New(zapcore.NewCore(encoder, zapcore.AddSync(&out), zap.DebugLevel))
		log.Info("x", zap.Any("a", s), zap.Any("h", h), zap.Stringer("s", s), zap.Reflect("r", h), zap.Error(fault{s}), zap.Any("l", h.list), zap.Any("m", h.byName))
		log.Sugar().Infow("x", "a", s, "h", h)
		log.Sugar().Infof("%v %+v %#v", s, h, h)
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("x", "a", s, "h", h, "p", &h)
	}
	if text := out.String(); strings.Contains(text, canary) || strings.Contains(strings.ToLower(text), fmt.Sprintf("%x", canary)) {
		t.Error("printed:", text)
	}
	for _, got := range []string{fmt.Sprint(s), fmt.Sprintf("%#v", s), s.String()} {
		if got != secret.Hidden {
			t.Errorf("printed as %q, want %q", got, secret.Hidden)
		}
	}
}

// TestSecret: the text is what it was made of, and only Equal compares it.
func TestSecret(t *testing.T) {
	a, b, zero := secret.New(canary), secret.New(canary), secret.Secret{}
	if a.Reveal() != canary || zero.Reveal() != "" || !secret.New("").IsZero() {
		t.Errorf("Reveal = %q, %q", a.Reveal(), zero.Reveal())
	}
	if !a.Equal(b) || a.Equal(zero) || a.Equal(secret.New(canary+"x")) || !zero.Equal(secret.New("")) {
		t.Error("Equal compares something else than the texts")
	}
	if a.IsZero() || !zero.IsZero() || !reflect.DeepEqual(a, b) {
		t.Error("IsZero or DeepEqual")
	}
}

// TestHide: a text has no secret any more, and words that look like short ones stay.
func TestHide(t *testing.T) {
	got := secret.Hide("my key is "+canary+", not "+canary+"! on", secret.New(canary), secret.New("on"), secret.Secret{})
	if want := "my key is ***, not ***! on"; got != want {
		t.Errorf("Hide = %q, want %q", got, want)
	}
}
