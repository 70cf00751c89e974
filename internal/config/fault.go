package config

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// maxShown is how many faults are printed; more are cut with a count.
const maxShown = 20

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	// File is the path as it was given.
	File string `json:"file"`
	// Line and Col count from 1, Col in characters; 0 means the file as a whole.
	Line int `json:"line,omitempty"`
	Col  int `json:"col,omitempty"`
	// Message says what is wrong.
	Message string `json:"message"`
	// Hint says what to do about it.
	Hint string `json:"hint,omitempty"`
	// Source is the line, with … for what may be a secret; empty if that is all of it.
	Source string `json:"source,omitempty"`

	caret int // column of the fault in Source, from 1
}

// String is the fault in one line.
func (f Fault) String() string {
	s := f.place() + "  " + f.Message
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

func (f Fault) place() string {
	if f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Col)
}

// Faults are all faults of a configuration, sorted by file and line. As an
// error its text is what Print writes.
type Faults []Fault

// Error returns what Print writes.
func (fs Faults) Error() string {
	var b strings.Builder
	fs.Print(&b)
	return strings.TrimRight(b.String(), "\n")
}

// Print writes the faults for a terminal: place, line, caret, hint.
func (fs Faults) Print(w io.Writer) {
	for i, f := range fs {
		if i == maxShown {
			fmt.Fprintf(w, "... and %d more\n", len(fs)-maxShown)
			return
		}
		f.print(w)
	}
}

func (f Fault) print(w io.Writer) {
	fmt.Fprintf(w, "%s  %s\n", f.place(), f.Message)
	if f.Source == "" {
		if f.Hint != "" {
			fmt.Fprintf(w, "     %s\n", f.Hint)
		}
		return
	}
	text, caret := window(f.Source, f.caret)
	number := fmt.Sprintf("%4d", f.Line)
	fmt.Fprintf(w, "%s | %s\n", number, text)
	fmt.Fprintf(w, "%s | %s\n", strings.Repeat(" ", len(number)), strings.TrimRight(strings.Repeat(" ", caret)+"^ "+f.Hint, " "))
}

// window cuts a line to what is around col, and returns where col is in it.
func window(line string, col int) (text string, caret int) {
	const before, width = 60, 110
	r := []rune(strings.ReplaceAll(line, "\t", " "))
	caret = min(max(col-1, 0), len(r))
	indent := 0
	for indent < len(r) && indent < caret && r[indent] == ' ' {
		indent++
	}
	start, lead := indent, ""
	if caret-start > before {
		start, lead = caret-before, "…"
	}
	end, trail := len(r), ""
	if end-start > width {
		end, trail = start+width, "…"
	}
	return lead + string(r[start:end]) + trail, caret - start + len([]rune(lead))
}

// tidy sorts the faults and drops those that are there twice.
func tidy(fs Faults) Faults {
	slices.SortStableFunc(fs, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return slices.Compact(fs)
}

// quote puts names in quotes for a message.
func quote(s string) string { return strconv.Quote(s) }
