package agent

import "unicode/utf8"

// maxQuoted is how many bytes of a text a message quotes.
const maxQuoted = 256

// Quote returns a text as messages quote it: the beginning of a long one, with an
// ellipsis.
func Quote(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return Excerpt(s, maxQuoted) + "…"
}

// Excerpt returns the beginning of a text, at most n bytes, with whole characters.
func Excerpt(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
