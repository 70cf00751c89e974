package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentteams/team-server/bench/measure"
)

// write writes the document and its charts from the stored results.
func (r *report) write() error {
	all := map[string]*results{}
	for _, p := range r.parts {
		if res := r.read(p); res != nil {
			all[p.name] = res
		}
	}
	if len(all) == 0 {
		return errors.New("nothing has been measured")
	}
	folder := strings.TrimSuffix(r.doc, filepath.Ext(r.doc))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	drawn := map[string]bool{}
	for _, f := range figures() {
		res := all[f.part]
		if res == nil {
			continue
		}
		svg := f.draw(res.Tables).svg()
		if svg == "" {
			continue
		}
		drawn[f.file] = true
		if err := os.WriteFile(filepath.Join(folder, f.file+".svg"), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	text := document(r.parts, all, drawn, filepath.Base(folder))
	if err := os.WriteFile(r.doc, []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "wrote %s\n", r.doc)
	return nil
}

const introduction = `# Performance

<!-- Written by make report; do not edit. -->

What the server costs, how the costs grow, and which goals it meets. ` + "`make report`" + ` measures all of this again on
your machine, and writes this page; ` + "`make report PART=growth`" + ` measures one part.
[bench/README.md](../bench/README.md) says what each benchmark does and how to read its table.

Figures are medians of five rounds, in which all rivals run in turn. Client and server share the cores. Times depend on
what else the machine does, so trust ratios and orders of magnitude; allocations are exact.

`

// document returns the text of the document.
func document(parts []part, all map[string]*results, drawn map[string]bool, folder string) string {
	var b strings.Builder
	b.WriteString(introduction)
	writeMachine(&b, parts, all)
	writeGoals(&b, parts, all)
	writeSizes(&b, all)
	for _, p := range parts {
		if res := all[p.name]; res != nil {
			writePart(&b, p, res, drawn, folder)
		}
	}
	return b.String()
}

func writeMachine(b *strings.Builder, parts []part, all map[string]*results) {
	b.WriteString("## How it was measured\n\n| Part | Commit | Time a round | Began | Took | Load before | Load after |\n|---|---|---|---|---|---|---|\n")
	var machines, missing []string
	busy := false
	for _, p := range parts {
		res := all[p.name]
		if res == nil {
			missing = append(missing, p.name)
			continue
		}
		fmt.Fprintf(b, "| %s | `%s` | %s | %s | %s | %s | %s |\n", p.name, res.Commit, res.Benchtime, res.Began.Format("2006-01-02 15:04"), res.Took, res.LoadBegin, res.LoadEnd)
		if m := res.Machine.String(); !slices.Contains(machines, m) {
			machines = append(machines, m)
		}
		var load float64
		if _, err := fmt.Sscanf(res.LoadBegin, "%f", &load); err == nil && load > float64(res.Machine.Cores)+0.5 {
			busy = true
		}
	}
	fmt.Fprintf(b, "\nMachine: %s.\n\nThe load is the average number of running processes over 1, 5 and 15 minutes. A + after the commit means that files had\nbeen changed.\n\n", strings.Join(machines, "; "))
	if busy {
		b.WriteString("**The machine was busy with other work when some of the parts began: their times are too long, and their rates too low.**\n\n")
	}
	if len(missing) > 0 {
		fmt.Fprintf(b, "Not measured yet: %s.\n\n", strings.Join(missing, ", "))
	}
	for _, p := range parts {
		if res := all[p.name]; res != nil && res.Failed != "" {
			fmt.Fprintf(b, "The part %s is not complete: %s.\n\n", p.name, escape(withoutPaths(res.Failed)))
		}
	}
}

func writeGoals(b *strings.Builder, parts []part, all map[string]*results) {
	b.WriteString("## Goals\n\nNo build fails because a goal is missed.\n\n| Part | Goal | Limit | Measured | |\n|---|---|---|---|---|\n")
	met, measured := 0, 0
	for _, p := range parts {
		res := all[p.name]
		if res == nil {
			continue
		}
		for _, t := range res.Tables {
			for _, g := range t.Goals {
				end := "not measured"
				if g.Got != "" {
					measured++
					end = "**missed**"
				}
				if g.Met {
					met++
					end = "met"
				}
				fmt.Fprintf(b, "| %s | %s | %s, %s | %s | %s |\n", p.name, g.Number, escape(t.Title), escape(g.Want()), escape(g.Got), end)
			}
		}
	}
	fmt.Fprintf(b, "\n%d of %d measured goals are met.\n\n", met, measured)
}

// sizes finds cells for the rules.
type sizes map[string]*results

// last returns the cell in a column of the last row that has all of the given cells, or "".
func (s sizes) last(part, table, column string, want map[string]string) (found string) {
	if s[part] == nil {
		return ""
	}
	for _, t := range s[part].Tables {
		at := slices.Index(t.Head, column)
		if !strings.HasPrefix(t.Title, table) || at < 0 {
			continue
		}
		for _, row := range t.Rows {
			fits := true
			for name, cell := range want {
				i := slices.Index(t.Head, name)
				fits = fits && i >= 0 && row[i] == cell
			}
			if _, ok := measure.Value(row[at]); fits && ok {
				found = row[at]
			}
		}
	}
	return found
}

// rule is a row of the table of sizes: the cells of the stores.
type rule struct {
	what                     string
	memory, sqlite, postgres string
}

func writeSizes(b *strings.Builder, all map[string]*results) {
	s := sizes(all)
	each := func(what, part, table, column string, more map[string]string) rule {
		get := func(store string) string {
			want := map[string]string{"store": store}
			for k, v := range more {
				want[k] = v
			}
			return s.last(part, table, column, want)
		}
		return rule{what, get("memory"), get("sqlite"), get("postgres")}
	}
	rules := []rule{
		each("Tasks a second, 64 callers on all cores", "servers", "whole servers", "tasks/s", map[string]string{"callers": "64", "server": "team-server"}),
		each("Tasks a second of one core, database included", "servers", "whole servers", "tasks/s of a core", map[string]string{"callers": "64", "server": "team-server"}),
		each("Tasks a second of a single caller", "servers", "whole servers", "tasks/s", map[string]string{"callers": "1", "server": "team-server"}),
		each("Memory of the server after the load, without the database", "servers", "whole servers", "peak RSS", map[string]string{"callers": "64", "server": "team-server"}),
		each("Memory for each run that waits for people", "waiting", "runs of a team", "heap/run", nil),
		each("Disk for each small task, indexes included", "list", "a page of 50", "disk/task", map[string]string{"filter": "none"}),
		{"Memory for each ended task of 500 bytes of a team", s.last("waiting", "what", "heap/task", map[string]string{"agent": "team"}), "", ""},
	}
	b.WriteString("## How large a server must be\n\n| | memory | SQLite | PostgreSQL |\n|---|---|---|---|\n")
	for _, r := range rules {
		if r.memory+r.sqlite+r.postgres == "" {
			continue
		}
		cells := []string{r.memory, r.sqlite, r.postgres}
		for i, c := range cells {
			if c == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintf(b, "| %s | %s |\n", r.what, strings.Join(cells, " | "))
	}
	b.WriteString("\n")
	s.advice(b)
}

// advice writes rules that follow from the figures.
func (s sizes) advice(b *strings.Builder) {
	if cell := s.last("servers", "whole servers", "tasks/s of a core", map[string]string{"callers": "64", "store": "postgres", "server": "team-server"}); cell != "" {
		if v, ok := measure.Value(cell); ok && v > 0 {
			fmt.Fprintf(b, "- Cores: divide your tasks a second by the tasks of one core. 1,000 small tasks a second on PostgreSQL use %.1f cores,\n  the database included. Time that members and models think costs none.\n", 1000/v)
		}
	}
	if cell := s.last("waiting", "runs of a team", "heap/run", map[string]string{"store": "postgres"}); cell != "" {
		fmt.Fprintf(b, "- Memory: a run that waits for people on PostgreSQL holds %s in the server, and no goroutine; what it waits for is in\n  the store.\n", cell)
	}
	if cell := s.last("list", "a page of 50", "disk/task", map[string]string{"store": "postgres"}); cell != "" {
		if v, ok := measure.Value(cell); ok {
			fmt.Fprintf(b, "- Disk: a million small tasks use %.1f GB on PostgreSQL. Add the size of your messages; `server.retention` says how long\n  tasks are kept.\n", v*1e6/1e9)
		}
	}
	for _, c := range [][2]string{{"idle", "An idle connection over HTTP"}, {"stream", "A connection with an open stream, its running task included,"}} {
		if cell := s.last("connections", "open connections", "memory each", map[string]string{"kind": c[0]}); cell != "" {
			fmt.Fprintf(b, "- %s uses %s and a file descriptor.\n", c[1], cell)
		}
	}
	b.WriteString("\n")
}

func writePart(b *strings.Builder, p part, res *results, drawn map[string]bool, folder string) {
	fmt.Fprintf(b, "## %s\n\n", p.title)
	for _, f := range figures() {
		if f.part == p.name && drawn[f.file] {
			fmt.Fprintf(b, "![%s: %s by %s](%s/%s.svg)\n\n", f.chart.title, f.chart.y, f.chart.x, folder, f.file)
		}
	}
	for _, t := range merged(res.Tables) {
		fmt.Fprintf(b, "%s:\n\n| %s |\n|%s\n", escape(strings.ToUpper(t.Title[:1])+t.Title[1:]), strings.Join(escapeAll(t.Head), " | "), strings.Repeat("---|", len(t.Head)))
		for _, row := range t.Rows {
			fmt.Fprintf(b, "| %s |\n", strings.Join(escapeAll(row), " | "))
		}
		b.WriteString("\n")
		for _, n := range t.Notes {
			fmt.Fprintf(b, "- %s\n", escape(withoutPaths(n)))
		}
		if len(t.Notes) > 0 {
			b.WriteString("\n")
		}
	}
}

// merged joins tables with the same title and columns at the place of the first.
func merged(tables []measure.Printed) (all []measure.Printed) {
	for _, t := range tables {
		same := func(m measure.Printed) bool { return m.Title == t.Title && slices.Equal(m.Head, t.Head) }
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i].Rows = append(slices.Clip(all[i].Rows), t.Rows...)
			continue
		}
		all = append(all, t)
	}
	return all
}

// escape keeps Markdown from reading a text as a cell, a tag or a link.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "[", `\[`, "\n", " ").Replace(text)
}

func escapeAll(cells []string) []string {
	all := make([]string, len(cells))
	for i, c := range cells {
		all[i] = escape(c)
	}
	return all
}
