package config

import (
	"fmt"
	"slices"
	"strings"
)

// suggest words a hint for a name that is not among the known ones: the one
// that was probably meant, or all of them.
func suggest(name string, known []string) string {
	known = slices.Sorted(slices.Values(known))
	if near := nearest(name, known); near != "" {
		return "did you mean " + quote(near) + "?"
	}
	if len(known) == 0 {
		return ""
	}
	const most = 64 // more than any part of a file has keys; there may be thousands of ids
	if len(known) > most {
		return fmt.Sprintf("known here, with %d more: %s", len(known)-most, strings.Join(known[:most], ", "))
	}
	return "known here: " + strings.Join(known, ", ")
}

// maxMeant is the longest name, in bytes, for which a similar one is searched: the
// search time grows with the square of the length, and ids have at most 63 bytes.
const maxMeant = 128

// nearest returns the known name with the fewest edits, if they are few; else
// the only one that has the name as one of its words. It is empty for a long name.
func nearest(name string, known []string) string {
	if len(name) > maxMeant {
		return ""
	}
	best, least := "", max(1, len(name)/3)+1
	for _, k := range known {
		if d := edits(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return containing(name, known)
	}
	return best
}

// containing returns the known name that has word between its _ and -, if there
// is only one.
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

// edits counts insertions, deletions, replacements and swaps of neighbours.
func edits(a, b string) int {
	ra, rb := []rune(a), []rune(b)
	rows := make([][]int, len(ra)+1)
	for i := range rows {
		rows[i] = make([]int, len(rb)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(ra); i++ {
		for j := 1; j <= len(rb); j++ {
			cost := 1
			if ra[i-1] == rb[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && ra[i-1] == rb[j-2] && ra[i-2] == rb[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(ra)][len(rb)]
}
