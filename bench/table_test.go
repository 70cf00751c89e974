package bench

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"
)

// table is printed when a benchmark is done.
type table struct {
	title, head string
	once        bool // no rounds: what was seen
	rows        []string
	goals       []string
}

// add adds a row; its cells are separated by tabs.
func (t *table) add(format string, args ...any) {
	t.rows = append(t.rows, fmt.Sprintf(format, args...))
}

func (t *table) print() {
	how := fmt.Sprintf(", medians of %d rounds in turn", rounds)
	if t.once {
		how = ""
	}
	fmt.Fprintf(os.Stdout, "\n%s%s\n", t.title, how)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\t\n", t.head)
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t\n", r)
	}
	_ = w.Flush() // to the terminal
	for _, g := range t.goals {
		fmt.Fprintf(os.Stdout, "%s\n", g)
	}
	fmt.Fprintln(os.Stdout)
}

func cpu(f figures) float64    { return float64(f.cpu) }
func allocs(f figures) float64 { return f.allocs }
func size(f figures) float64   { return f.bytes }
func each(f figures) float64   { return f.each() }

// short is a time in nanoseconds with three digits.
func short(ns float64) string {
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
