package guard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a schema file.
type Fault struct {
	// File is the name that ParseSchema was given.
	File string
	// Line and Col count from 1, Col in characters.
	Line, Col int
	// Message says what is wrong.
	Message string
	// Hint says what to do about it; may be empty.
	Hint string
}

// String is the fault in one line: file:line:col  message (hint).
func (f Fault) String() string {
	s := fmt.Sprintf("%s:%d:%d  %s", f.File, f.Line, f.Col, f.Message)
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

// Faults is the error of ParseSchema: everything that is wrong with a schema,
// sorted by place.
type Faults []Fault

// Error returns one line a fault.
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
