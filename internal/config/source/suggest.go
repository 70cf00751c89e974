package source

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentteams/team-server/internal/similar"
)

// Suggest returns a hint for a name that is not among the known ones: the most similar known name,
// or all known names.
func Suggest(name string, known []string) string {
	known = slices.Sorted(slices.Values(known))
	if near := Nearest(name, known); near != "" {
		return "did you mean " + strconv.Quote(near) + "?"
	}
	return Listed(known)
}

// Listed returns a hint with all known names, which are sorted, or with some if there are many.
func Listed(known []string) string {
	if len(known) == 0 {
		return ""
	}
	const most = 64 // no part of a file has more keys, but there may be thousands of ids
	if len(known) > most {
		return fmt.Sprintf("known here, with %d more: %s", len(known)-most, strings.Join(known[:most], ", "))
	}
	return "known here: " + strings.Join(known, ", ")
}

// Nearest returns the most similar known name, else the only known name that contains name as a word. It returns "" if
// neither exists.
func Nearest(name string, known []string) string {
	if near := similar.Nearest(name, known, max(1, len(name)/3)); near != "" {
		return near
	}
	return containing(name, known)
}

// containing returns the known name that contains word, delimited by _ or -, if there is exactly
// one.
func containing(word string, known []string) string {
	found := ""
	for _, k := range known {
		words := strings.FieldsFunc(k, func(r rune) bool { return r == '_' || r == '-' })
		switch {
		case !slices.Contains(words, word):
		case found != "":
			return ""
		default:
			found = k
		}
	}
	return found
}

// SuggestAll returns a hint that names the most similar known name and lists all known names.
func SuggestAll(name string, known []string) string {
	if len(known) == 0 {
		return "nothing is known here; remove it"
	}
	hint := "known here: " + strings.Join(known, ", ")
	if near := Nearest(name, known); near != "" {
		hint = fmt.Sprintf("did you mean %q? K%s", near, hint[1:])
	}
	return hint
}
