package measure

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrint prints a table with goals, and reads it again as JSON.
func TestPrint(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tables")
	table := &Table{Title: "a table", Once: true, Head: "c\trival\ttime\trate", Goals: []string{
		"goal 1: rival=own: time <= 2µs", "goal 2: rival=own, c=8: rate >= 1,000", "goal 3: rival=own: rate >= 500",
		"goal 4: rival=none: rate >= 1", "a note",
	}}
	table.Add("1\town\t1.5µs\t600")
	table.Add("8\town\t3ms\t1000")
	p := table.printed()
	var out bytes.Buffer
	p.write(&out)
	for _, want := range []string{
		"goal 1: rival own, time at most 2µs: 3ms, missed", "goal 2: rival own, c 8, rate at least 1,000: 1000, met",
		"goal 3: rival own, rate at least 500: 600, met", "goal 4: rival none, rate at least 1: not measured", "a note",
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("there is no line %q in\n%s", want, &out)
		}
	}
	if err := p.save(file); err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var read Printed
	if err := json.Unmarshal(line, &read); err != nil {
		t.Fatal(err)
	}
	if read.Title != "a table" || len(read.Rows) != 2 || read.Rows[1][2] != "3ms" || len(read.Goals) != 4 || read.Goals[0].Met || !read.Goals[1].Met {
		t.Errorf("read %+v", read)
	}
}

// TestParseGoal refuses what is not a goal.
func TestParseGoal(t *testing.T) {
	for _, text := range []string{"goal 1", "goal 1: rival=own", "goal 1: rival=own: rate > 1", "goal 1: rival=own: rate >= much"} {
		if _, err := parseGoal(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestValue reads the cells of the tables.
func TestValue(t *testing.T) {
	for cell, want := range map[string]float64{"1.5µs": 1500, "38,700": 38700, "2.50": 2.5, "123 B": 123, "1.5 MB": 1.5e6, "-25ns": -25} {
		if got, ok := Value(cell); !ok || got != want {
			t.Errorf("%q is %v, %v, want %v", cell, got, ok, want)
		}
	}
	for _, cell := range []string{"", "-", "store"} {
		if got, ok := Value(cell); ok {
			t.Errorf("%q is %v, want none", cell, got)
		}
	}
}
