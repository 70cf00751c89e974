package model

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/agentteams/team-server/pkg/secret"
)

// shown is the maximum number of characters of an error of an endpoint that callers and the log get.
const shown = 1000

// cause is an error for the log, without secrets and shortened.
type cause struct {
	err   error
	clean func(string) string
}

func (c *cause) Error() string { return c.clean(c.err.Error()) }
func (c *cause) Unwrap() error { return c.err }

// cause returns an error for the log.
func (c *Config) cause(err error) *cause { return &cause{err, c.clean} }

// clean returns a text as one line of at most shown characters, without the secrets of the model and what
// else looks like a credential.
func (c *Config) clean(s string) string {
	secrets := []secret.Secret{c.APIKey}
	for _, values := range c.Headers {
		secrets = append(secrets, values)
	}
	return clean(s, secrets, shown)
}

// credential matches text that looks like a credential.
var credential = regexp.MustCompile(`(?i)\b(sk-|AIza|bearer\s+)[\w*.-]{4,}`)

var escapes = strings.NewReplacer(`\n`, " ", `\r`, " ", `\t`, " ")

// clean returns a text as one line of at most n characters, without credentials.
func clean(s string, secrets []secret.Secret, n int) string {
	for _, key := range secrets {
		if !key.IsZero() {
			s = strings.ReplaceAll(s, key.Reveal(), secret.Hidden)
		}
	}
	s = escapes.Replace(s) // of JSON, which would hide where a word begins
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
