package model

import (
	"regexp"
	"strings"
	"unicode"
)

// cause is an error for the log, without the key and shortened.
type cause struct {
	err error
	key string
}

func (c *cause) Error() string { return clean(c.err.Error(), c.key, 1000) }
func (c *cause) Unwrap() error { return c.err }

// secret matches text that looks like a credential.
var secret = regexp.MustCompile(`(?i)\b(sk-|AIza|bearer\s+)[\w*.-]{4,}`)

// clean returns a text as one line of at most n characters, without credentials.
func clean(s, key string, n int) string {
	if key != "" {
		s = strings.ReplaceAll(s, key, "***")
	}
	s = secret.ReplaceAllString(s, "***")
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
