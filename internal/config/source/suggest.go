package source

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// maxSimilar is the maximum length, in bytes, of a name for which a similar one is searched: the
// search time grows with the square of the length. Ids have at most 63 bytes.
const maxSimilar = 128

// Nearest returns the known name with the fewest edits if there are few enough, else the only known
// name that contains name as a word. It returns "" if no known name is similar, or if name is too long.
func Nearest(name string, known []string) string {
	if len(name) > maxSimilar {
		return ""
	}
	best, least := "", max(1, len(name)/3)+1
	for _, k := range known {
		if length := len(k) - len(name); length >= 4*least || -length >= 4*least { // a character has up to four bytes
			continue
		}
		if d := edits(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return containing(name, known)
	}
	return best
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

// edits returns the edit distance: the number of insertions, deletions, replacements and swaps of
// neighbors.
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
