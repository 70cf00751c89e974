package scripted

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fault is an error in a script.
type Fault struct {
	// File is the name that was given to Parse.
	File string
	// Line and Col count from 1, Col in characters.
	Line, Col int
	// Message says what is wrong.
	Message string
	// Hint says what to do about it; may be "".
	Hint string
}

// String returns the fault on one line: file:line:col  message (hint).
func (f Fault) String() string {
	s := fmt.Sprintf("%s:%d:%d  %s", f.File, f.Line, f.Col, f.Message)
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

// Faults holds all errors in a script, sorted by position.
type Faults []Fault

// Error returns the faults, one per line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

func (fs Faults) sort() {
	slices.SortStableFunc(fs, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}

// suggest returns a hint for a name that is not among the known ones.
func suggest(name string, known ...string) string {
	slices.Sort(known)
	best, least := "", max(1, len(name)/3)+1
	for _, k := range known {
		if d := edits(name, k); d < least {
			best, least = k, d
		}
	}
	switch {
	case best != "":
		return "did you mean " + strconv.Quote(best) + "?"
	case len(known) > 0:
		return "known here: " + strings.Join(known, ", ")
	}
	return ""
}

// edits returns the edit distance of two names: the number of insertions, deletions, replacements
// and swaps of neighbors. Names that are too long to be misspellings are given a large distance.
func edits(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
