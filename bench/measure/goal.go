package measure

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Goal is a limit for the cells of one column in some of the rows. As text it is
//
//	goal NUMBER: COLUMN=CELL, COLUMN=CELL: COLUMN >= VALUE
//
// with <= for an upper limit. The pairs select the rows.
type Goal struct {
	Number string `json:"number"`
	Rows   string `json:"rows"`
	Column string `json:"column"`
	Most   bool   `json:"most,omitempty"` // Limit is an upper limit
	Limit  string `json:"limit"`
	// Got is the worst value of the selected cells. It is "" if the goal selects no cell.
	Got string `json:"got,omitempty"`
	Met bool   `json:"met,omitempty"`
}

var goalText = regexp.MustCompile(`^goal ([^:]+): ([^:]+): (.+) ([<>]=) (.+)$`)

func parseGoal(text string) (Goal, error) {
	m := goalText.FindStringSubmatch(text)
	if m == nil {
		return Goal{}, fmt.Errorf("%q must have the form %q", text, "goal NUMBER: COLUMN=CELL, COLUMN=CELL: COLUMN >= VALUE")
	}
	g := Goal{Number: m[1], Rows: m[2], Column: m[3], Most: m[4] == "<=", Limit: m[5]}
	if _, ok := Value(g.Limit); !ok {
		return Goal{}, fmt.Errorf("%q: %q is not a value", text, g.Limit)
	}
	return g, nil
}

// check returns the goal with the worst of its cells in a table.
func (g Goal) check(p Printed) Goal {
	limit, _ := Value(g.Limit)
	column := slices.Index(p.Head, g.Column)
	if column < 0 {
		panic(fmt.Sprintf("goal %s of %q: there is no column %q", g.Number, p.Title, g.Column))
	}
	var worst float64
	for _, row := range p.Rows {
		v, ok := Value(row[column])
		if !ok || !p.selects(row, g.Rows) {
			continue
		}
		if g.Got == "" || (v > worst) == g.Most {
			worst, g.Got = v, row[column]
		}
	}
	g.Met = g.Got != "" && (worst == limit || (worst < limit) == g.Most)
	return g
}

// selects reports whether the row has the cells that the pairs name.
func (p Printed) selects(row []string, pairs string) bool {
	for pair := range strings.SplitSeq(pairs, ", ") {
		name, cell, _ := strings.Cut(pair, "=")
		i := slices.Index(p.Head, name)
		if i < 0 {
			panic(fmt.Sprintf("%q has no column %q", p.Title, name))
		}
		if row[i] != cell {
			return false
		}
	}
	return true
}

// String returns the goal and whether it is met.
func (g Goal) String() string {
	end := "missed"
	switch {
	case g.Got == "":
		return fmt.Sprintf("goal %s: %s: not measured", g.Number, g.Want())
	case g.Met:
		end = "met"
	}
	return fmt.Sprintf("goal %s: %s: %s, %s", g.Number, g.Want(), g.Got, end)
}

// Want returns what the goal asks for, in words.
func (g Goal) Want() string {
	relation := "at least"
	if g.Most {
		relation = "at most"
	}
	return fmt.Sprintf("%s, %s %s %s", strings.ReplaceAll(g.Rows, "=", " "), g.Column, relation, g.Limit)
}

// Value returns the number in a cell: a duration in nanoseconds, a size in bytes, or the number
// itself. It reports whether the cell has one.
func Value(cell string) (float64, bool) {
	cell = strings.ReplaceAll(cell, ",", "")
	for unit, factor := range map[string]float64{" B": 1, " KB": 1e3, " MB": 1e6} {
		if number, ok := strings.CutSuffix(cell, unit); ok {
			v, err := strconv.ParseFloat(number, 64)
			return v * factor, err == nil
		}
	}
	if v, err := strconv.ParseFloat(cell, 64); err == nil {
		return v, true
	}
	d, err := time.ParseDuration(cell)
	return float64(d), err == nil
}
