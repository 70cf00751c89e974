package prompt

import (
	"slices"
	"strings"
)

// Named returns the one of names that a model means by said: the same name, or the only one that differs
// from it just in case, blanks, quotes, "_" and "-". ok is false if there is none, or more than one.
func Named(said string, names []string) (name string, ok bool) {
	if slices.Contains(names, said) {
		return said, true
	}
	for _, n := range names {
		switch {
		case plain(n) != plain(said):
		case ok:
			return "", false
		default:
			name, ok = n, true
		}
	}
	return name, ok
}

// plain returns a name without what models change in names.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\r\n_-\"'`“”‘’«»", r) {
			return -1
		}
		return r
	}, strings.ToLower(name))
}
