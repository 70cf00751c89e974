package db

import (
	"strconv"
	"strings"
)

// Where is an SQL condition with its arguments.
type Where struct {
	Text string
	Args []any
}

// And adds a condition. Each ? in it stands for one of the arguments, in order.
func (w *Where) And(text string, args ...any) {
	for _, a := range args {
		text = strings.Replace(text, "?", w.Arg(a), 1)
	}
	if w.Text != "" {
		text = w.Text + " AND " + text
	}
	w.Text = text
}

// Arg adds an argument and returns its placeholder.
func (w *Where) Arg(value any) string {
	w.Args = append(w.Args, value)
	return "$" + strconv.Itoa(len(w.Args))
}

// Marks returns n placeholders for And, for the list of an IN. An IN without any has NULL, which nothing equals.
func Marks(n int) string {
	if n == 0 {
		return "NULL"
	}
	return strings.Repeat("?, ", n-1) + "?"
}

// Numbered returns n placeholders from a number on.
func Numbered(from, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = "$" + strconv.Itoa(from+i)
	}
	return strings.Join(list, ", ")
}

// Flag returns a boolean as it is stored: 1 or 0.
func Flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Repeat calls a step until it reports that nothing is left to do.
func Repeat(step func() (more bool, err error)) error {
	for {
		if more, err := step(); err != nil || !more {
			return err
		}
	}
}
