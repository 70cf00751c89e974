package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// TablesVariable is the environment variable with the file to which printed tables are appended,
// each as a line of JSON; see Printed.
const TablesVariable = "BENCH_TABLES"

// Table is the table of results that a benchmark prints at its end.
type Table struct {
	Title, Head string
	Once        bool // the values were measured once, not in rounds
	rows        []string
	// Goals are printed below the table. One that begins with "goal" is checked and must have
	// the form that Goal describes. The others are notes.
	Goals []string
}

// Printed is a table in a form that programs read.
type Printed struct {
	Title string     `json:"title"`
	Once  bool       `json:"once,omitempty"` // the values were measured once, not in rounds
	Head  []string   `json:"head"`
	Rows  [][]string `json:"rows"`
	Goals []Goal     `json:"goals,omitempty"`
	Notes []string   `json:"notes,omitempty"`
}

// Add adds a row; its cells are separated by tabs.
func (t *Table) Add(format string, args ...any) {
	t.rows = append(t.rows, fmt.Sprintf(format, args...))
}

// Print prints the table and its goals to the standard output, and appends them to the file that
// TablesVariable names. It panics if a goal cannot be read or the file cannot be written.
func (t *Table) Print() {
	p := t.printed()
	p.write(os.Stdout)
	if err := p.save(os.Getenv(TablesVariable)); err != nil {
		panic(err)
	}
}

func (t *Table) printed() Printed {
	p := Printed{Title: t.Title, Once: t.Once, Head: cells(t.Head)}
	for _, r := range t.rows {
		p.Rows = append(p.Rows, cells(r))
	}
	for _, text := range t.Goals {
		if !strings.HasPrefix(text, "goal ") {
			p.Notes = append(p.Notes, text)
			continue
		}
		g, err := parseGoal(text)
		if err != nil {
			panic(err)
		}
		p.Goals = append(p.Goals, g.check(p))
	}
	return p
}

func cells(row string) []string {
	all := strings.Split(row, "\t")
	for i, c := range all {
		all[i] = strings.TrimSpace(c)
	}
	return all
}

func (p Printed) write(out io.Writer) {
	how := fmt.Sprintf(", medians of %d rounds in turn", Rounds)
	if p.Once {
		how = ""
	}
	fmt.Fprintf(out, "\n%s%s\n", p.Title, how)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, r := range append([][]string{p.Head}, p.Rows...) {
		fmt.Fprintf(w, "%s\t\n", strings.Join(r, "\t"))
	}
	_ = w.Flush() // to the terminal
	for _, g := range p.Goals {
		fmt.Fprintln(out, g)
	}
	for _, n := range p.Notes {
		fmt.Fprintln(out, n)
	}
	fmt.Fprintln(out)
}

// save appends the table to a file; "" saves nothing.
func (p Printed) save(file string) error {
	if file == "" {
		return nil
	}
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the caller's own
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
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
