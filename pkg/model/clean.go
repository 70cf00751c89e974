package model

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/agentteams/team-server/pkg/secret"
)

// cause is an error for the log, without the key and shortened.
type cause struct {
	err error
	key secret.Secret
}

func (c *cause) Error() string { return clean(c.err.Error(), c.key, 1000) }
func (c *cause) Unwrap() error { return c.err }

// credential matches text that looks like a credential.
var credential = regexp.MustCompile(`(?i)\b(sk-|AIza|bearer\s+)[\w*.-]{4,}`)

// clean returns a text as one line of at most n characters, without credentials.
func clean(s string, key secret.Secret, n int) string {
	if !key.IsZero() {
		s = strings.ReplaceAll(s, key.Reveal(), secret.Hidden)
	}
	s = credential.ReplaceAllString(s, secret.Hidden)
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
