package a2aclient

import (
	"fmt"
	"regexp"
	"strings"
)

// raw shows a line.
func (w *web) raw(format string, args ...any) {
	if w.cfg.Raw != nil {
		fmt.Fprintln(w.cfg.Raw, inner.ReplaceAllString(fmt.Sprintf(format, args...), `$1"***"`))
	}
}

// inner matches the secrets of push notifications, in JSON.
var inner = regexp.MustCompile(`("(?:credentials|token)"\s*:\s*)"(?:[^"\\]|\\.)*"`)

// secret matches names of headers whose value is not shown.
var secret = regexp.MustCompile(`(?i)auth|token|key|secret|cookie|password|credential`)

func (w *web) rawHeader(direction string, h map[string][]string, names ...string) {
	for _, name := range names {
		for _, value := range h[name] {
			if secret.MatchString(name) {
				value = "***"
			}
			w.raw("%s %s: %s", direction, strings.Replace(name, "A2a-", "A2A-", 1), value)
		}
	}
}
