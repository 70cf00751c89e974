package scripted

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentteams/team-server/internal/similar"
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
	best := similar.Nearest(name, known, max(1, len(name)/3))
	switch {
	case best != "":
		return "did you mean " + strconv.Quote(best) + "?"
	case len(known) > 0:
		return "known here: " + strings.Join(known, ", ")
	}
	return ""
}
