package a2aclient

import (
	"fmt"
	"regexp"
	"strings"
)

// raw writes a line to Config.Raw.
func (w *web) raw(format string, args ...any) {
	if w.cfg.Raw == nil {
		return
	}
	line := inner.ReplaceAllString(fmt.Sprintf(format, args...), `$1"***"`)
	w.lines.Lock()
	defer w.lines.Unlock()
	fmt.Fprintln(w.cfg.Raw, line)
}

// inner matches the secrets of webhooks in JSON.
var inner = regexp.MustCompile(`("(?:credentials|token)"\s*:\s*)"(?:[^"\\]|\\.)*"`)

// secretHeader matches the names of headers whose values are replaced by ***.
var secretHeader = regexp.MustCompile(`(?i)auth|token|key|secret|cookie|password|credential`)

// rawHeader writes the named headers to Config.Raw.
func (w *web) rawHeader(direction string, h map[string][]string, names ...string) {
	for _, name := range names {
		for _, value := range h[name] {
			if secretHeader.MatchString(name) {
				value = "***"
			}
			w.raw("%s %s: %s", direction, strings.Replace(name, "A2a-", "A2A-", 1), value)
		}
	}
}
