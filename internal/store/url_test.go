package store

import (
	"strings"
	"testing"
)

func TestURLs(t *testing.T) {
	for raw, shown := range map[string]string{
		"memory:":                          "memory:",
		"sqlite:team.db":                   "sqlite:team.db",
		"postgres://h/d":                   "postgres://h/d",
		"postgres://ann:s3cret@h:5432/d":   "postgres://ann:xxxxx@h:5432/d",
		"postgresql://ann:s3cret@h/d":      "postgresql://ann:xxxxx@h/d",
		"postgres://h/d?password=s3cret":   "postgres://h/d?password=xxxxx",
		"postgres://ann:s3%40cret@[h/d":    "postgres://…",
		"postgres://h/d?sslmode=disable":   "postgres://h/d?sslmode=disable",
		"postgres://h/d?pasword=s3cret":    "postgres://h/d?pasword=xxxxx",
		"postgres://h/?sslpassword=s3cret": "postgres://h/?sslpassword=xxxxx",
	} {
		if err := CheckURL(raw); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		if got := Redacted(raw); got != shown {
			t.Errorf("%s is shown as %s, not %s", raw, got, shown)
		}
	}
	for raw, shown := range map[string]string{"": "", "sqlite:": "sqlite:", "team.db": "team.db", "mysql://a:s3cret@h": "mysql:…",
		"postgres://ann:a@s3cret@h/d": "postgres:…", "postgresql://ann:a@s3cret@h": "postgresql:…"} {
		if CheckURL(raw) == nil || Redacted(raw) != shown {
			t.Errorf("%q: %v, shown as %q", raw, CheckURL(raw), Redacted(raw))
		}
	}
}

func TestConceal(t *testing.T) {
	for raw, text := range map[string]string{
		"postgres://ann:s3%21cret@h/d":        "dial postgres://ann:s3%21cret@h/d and ann:s3!cret@h",
		"postgres://h/d?pasword=s3cret":       "parse postgres://h/d?pasword=s3cret",
		"postgres://h/d?password=s3cret":      "parse password=s3cret host=h",
		"postgres://postgres:postgres@h/post": "user=postgres postgres:postgres@h",
		"sqlite:x":                            "x is in use",
		"":                                    "nothing to hide",
	} {
		got := Conceal(text, raw)
		if strings.Contains(got, "s3") || strings.Contains(got, ":postgres@") {
			t.Errorf("%s shows %s", raw, got)
		}
		if raw == "sqlite:x" && got != text || raw == "" && got != text {
			t.Errorf("%s becomes %s", text, got)
		}
	}
}
