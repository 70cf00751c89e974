// Package similar suggests the known name that is closest to a misspelled one.
package similar

import "strings"

// maxName is the maximum length, in bytes, of a name for which a similar one is searched: the search time grows with the
// square of the length.
const maxName = 128

// Nearest returns the known name with the smallest edit distance to name, the first one of several. The distance must be at
// most most, and less than the length of the known name in bytes. Case is ignored. It returns "" if no known name is similar, or if name is too long.
func Nearest(name string, known []string, most int) string {
	if len(name) > maxName {
		return ""
	}
	best, least := "", most+1
	for _, k := range known {
		if length := len(k) - len(name); length >= 4*least || -length >= 4*least { // a character has up to four bytes
			continue
		}
		if d := edits([]rune(strings.ToLower(name)), []rune(strings.ToLower(k))); d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

// edits returns the edit distance: the number of insertions, deletions, replacements and swaps of
// neighbors.
func edits(a, b []rune) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
