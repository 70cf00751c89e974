package agent

import "unicode/utf8"

// maxQuoted is the maximum length, in bytes, of text that Quote returns without the ellipsis.
const maxQuoted = 256

// Quote returns s for use in a message. If s is long, it returns the beginning and an ellipsis.
func Quote(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return Excerpt(s, maxQuoted) + "…"
}

// Excerpt returns the beginning of s: at most n bytes, and no partial UTF-8 sequence at the end.
func Excerpt(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
