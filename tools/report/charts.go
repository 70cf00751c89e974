package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/agentteams/team-server/bench/measure"
)

// figure is a chart and where its data is in the tables.
type figure struct {
	file  string // name of the chart, without .svg
	part  string
	table string // the beginning of the titles of the tables
	chart chart
	// Each row is a line whose points are in the columns with a number in their names, if x is "".
	// Otherwise a row is a point: x and y are its columns.
	x, y string
	// series are the columns that name a line.
	series []string
	only   func(cells map[string]string) bool // nil means all rows
}

// figures returns all charts, in the order of the document.
func figures() []figure {
	peer := func(kind string) func(map[string]string) bool {
		return func(c map[string]string) bool { return strings.HasPrefix(c["team"], kind+" ") }
	}
	noFilter := func(c map[string]string) bool { return c["filter"] == "none" }
	server := func(c map[string]string) bool { return c["rival"] != "" }
	return []figure{
		{file: "steps", part: "growth", table: "runs of sequential steps", series: []string{"rival"}, chart: chart{title: "A run by its steps", x: "steps", y: "time of a run", format: measure.Short}},
		{file: "history", part: "growth", table: "a step by the messages", series: []string{"messages"}, chart: chart{title: "A step by the messages before it", x: "messages", y: "time of a step", format: measure.Short}},
		{file: "depth", part: "growth", table: "teams within teams", series: []string{"rival"}, chart: chart{title: "Teams within teams", x: "levels", y: "time of a run", format: measure.Short}},
		{file: "width", part: "growth", table: "members that work at the same time", series: []string{"rival"}, chart: chart{title: "Members that work at the same time", x: "members", y: "time of a run", format: measure.Short}},
		{file: "members", part: "growth", table: "a leader picks", x: "members", y: "time", series: []string{"rival"}, chart: chart{title: "A leader picks one of its members", x: "members offered", y: "time of a run", format: measure.Short}},
		{file: "peers-history", part: "peers", table: "the same teams", x: "team", y: "time", series: []string{"framework"}, only: peer("history"), chart: chart{title: "A conversation, in several frameworks", x: "messages", y: "time of a run", format: measure.Short}},
		{file: "peers-depth", part: "peers", table: "the same teams", x: "team", y: "time", series: []string{"framework"}, only: peer("depth"), chart: chart{title: "Teams within teams, in several frameworks", x: "levels", y: "time of a run", format: measure.Short}},
		{file: "durable", part: "durable", table: "a durable step", x: "c", y: "steps/s", series: []string{"rival"}, only: server, chart: chart{title: "Durable steps by concurrent runs", x: "concurrent runs", y: "steps a second", format: count}},
		{file: "list", part: "list", table: "a page of 50", x: "tasks", y: "p50", series: []string{"store"}, only: noFilter, chart: chart{title: "A page of 50 tasks", x: "tasks of the owner", y: "median time", format: measure.Short}},
		{file: "watchers", part: "watch", table: "SubscribeToTask", x: "readers", y: "deliveries/s", series: []string{"rival"}, only: func(c map[string]string) bool { return c["events"] == "500" }, chart: chart{title: "Readers of a task of 500 events", x: "readers", y: "deliveries a second", format: count}},
		{file: "waiting", part: "waiting", table: "runs of a team that wait", x: "runs", y: "heap/run", series: []string{"store"}, chart: chart{title: "Runs that wait for people", x: "waiting runs", y: "bytes of memory each", format: count}},
	}
}

var number = regexp.MustCompile(`^(?:.*\s)?([\d,]+)$`)

// draw returns the chart with the data of the tables.
func (f figure) draw(tables []measure.Printed) chart {
	c := f.chart
	lines := map[string]int{}
	for _, t := range tables {
		if !strings.HasPrefix(t.Title, f.table) {
			continue
		}
		for _, row := range t.Rows {
			cells := map[string]string{}
			for i, name := range t.Head {
				cells[name] = row[i]
			}
			if f.only != nil && !f.only(cells) {
				continue
			}
			var names []string
			for _, s := range f.series {
				names = append(names, cells[s])
			}
			name := strings.Join(names, ", ")
			if _, ok := lines[name]; !ok {
				lines[name] = len(c.lines)
				c.lines = append(c.lines, line{name: name})
			}
			l := &c.lines[lines[name]]
			l.points = append(l.points, f.points(t, row, cells)...)
		}
	}
	c.lines = slices.DeleteFunc(c.lines, func(l line) bool { return len(l.points) == 0 })
	return c
}

// points returns those of a row.
func (f figure) points(t measure.Printed, row []string, cells map[string]string) (all []point) {
	add := func(x, y string) {
		m := number.FindStringSubmatch(x)
		if m == nil {
			return
		}
		atX, _ := measure.Value(m[1])
		if atY, ok := measure.Value(y); ok && atX > 0 && atY > 0 {
			all = append(all, point{atX, atY})
		}
	}
	if f.x != "" {
		add(cells[f.x], cells[f.y])
		return all
	}
	for i, name := range t.Head {
		if !strings.HasPrefix(name, "allocs") && i > 0 {
			add(name, row[i])
		}
	}
	return all
}
