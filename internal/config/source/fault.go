package source

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxShown is the number of faults that are printed; for the rest only their number is printed.
const maxShown = 20

// Fault is an error in a configuration file.
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
	// Source is the text of the line, with possible secrets replaced by "…". It is empty if nothing
	// else remains.
	Source string `json:"source,omitempty"`

	caret int // column of the fault in Source, from 1
}

// String returns the fault on one line.
func (f Fault) String() string {
	s := f.Place() + "  " + f.Message
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

// Place returns the file, line and column of the fault, separated by colons.
func (f Fault) Place() string {
	if f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Col)
}

// Faults holds all faults of a configuration, sorted by file and line. It implements error.
type Faults []Fault

// Error returns the text that Print writes, without the trailing newline.
func (fs Faults) Error() string {
	var b strings.Builder
	fs.Print(&b)
	return strings.TrimRight(b.String(), "\n")
}

// Print writes the faults for a terminal: position, line, caret and hint.
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
	fmt.Fprintf(w, "%s  %s\n", f.Place(), f.Message)
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

// window shortens a line to the part around col, and returns the index of col in it.
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

// Tidy sorts the faults of several files and removes duplicates.
func Tidy(fs Faults) Faults {
	slices.SortStableFunc(fs, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return slices.Compact(fs)
}
