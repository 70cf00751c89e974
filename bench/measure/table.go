package measure

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"
)

// Table is the table of results that a benchmark prints at its end.
type Table struct {
	Title, Head string
	Once        bool // the values were measured once, not in rounds
	rows        []string
	Goals       []string
}

// Add adds a row; its cells are separated by tabs.
func (t *Table) Add(format string, args ...any) {
	t.rows = append(t.rows, fmt.Sprintf(format, args...))
}

// Print prints the table and its goals to the standard output.
func (t *Table) Print() {
	how := fmt.Sprintf(", medians of %d rounds in turn", Rounds)
	if t.Once {
		how = ""
	}
	fmt.Fprintf(os.Stdout, "\n%s%s\n", t.Title, how)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\t\n", t.Head)
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t\n", r)
	}
	_ = w.Flush() // to the terminal
	for _, g := range t.Goals {
		fmt.Fprintf(os.Stdout, "%s\n", g)
	}
	fmt.Fprintln(os.Stdout)
}

// CPU returns the CPU time per operation, in nanoseconds.
func CPU(f Figures) float64 { return float64(f.CPU) }

// Allocs returns the number of allocations per operation.
func Allocs(f Figures) float64 { return f.Allocs }

// Bytes returns the number of bytes allocated per operation.
func Bytes(f Figures) float64 { return f.Bytes }

// Each returns the elapsed time per operation, in nanoseconds.
func Each(f Figures) float64 { return f.Each() }

// Short formats a time in nanoseconds, rounded to about three digits.
func Short(ns float64) string {
	switch d := time.Duration(ns); {
	case d >= 100*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d >= 10*time.Microsecond:
		return d.Round(100 * time.Nanosecond).String()
	}
	return time.Duration(ns).String()
}
