package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/bench/measure"
)

// measured stores results of two parts, as a run of the benchmarks does.
func measured(t *testing.T) *report {
	t.Helper()
	dir := t.TempDir()
	r := &report{out: io.Discard, parts: parts(), dir: dir, doc: filepath.Join(dir, "performance.md"), benchtime: "1x", limit: time.Minute}
	growth := results{
		Part: "growth", Commit: "0123456789ab", Benchtime: "1x", Machine: machine{Cores: 2, CPU: "a CPU", Memory: "24 GiB", System: "linux/amd64", Go: "go1.26"},
		Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: "1m0s", LoadBegin: "7.50 3.00 1.00", LoadEnd: "2.00 3.00 1.00",
		Tables: []measure.Printed{
			{
				Title: "runs of sequential steps, journal in memory", Head: []string{"rival", "1", "3", "100", "per step", "allocs/step"},
				Rows:  [][]string{{"member", "1µs", "3µs", "90µs", "1µs", "2.0"}, {"store", "9µs", "20µs", "800µs", "8µs", "20.0"}},
				Goals: []measure.Goal{{Number: "5", Rows: "rival=store", Column: "per step", Most: true, Limit: "2µs", Got: "8µs"}, {Number: "5", Rows: "rival=store", Column: "allocs/step", Most: true, Limit: "24", Got: "20.0", Met: true}},
				Notes: []string{"a note with a <tag> and /a/path/of/this/machine"},
			},
			{
				Title: "a leader picks one of its members", Head: []string{"members", "rival", "time"},
				Rows: [][]string{{"10", "store", "20µs"}, {"1000", "store", "25µs"}},
			},
		},
	}
	waiting := results{Part: "waiting", Commit: "0123456789ab", Benchtime: "1x", LoadBegin: "0.10 0.10 0.10", Failed: "go test: exit status 1", Tables: []measure.Printed{
		{Title: "runs of a team that wait for people, in one process", Head: []string{"store", "runs", "heap/run"}, Rows: [][]string{{"memory", "100", "9000 B"}}},
		{Title: "what ended tasks hold in memory", Head: []string{"agent", "heap/task"}, Rows: [][]string{{"team", "6000 B"}}},
		{Title: "runs of a team that wait for people, in one process", Head: []string{"store", "runs", "heap/run"}, Rows: [][]string{{"memory", "1000", "8000 B"}, {"sqlite", "1000", "200 B"}}},
	}}
	for _, res := range []results{growth, waiting} {
		if err := r.save(part{name: res.Part}, res); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestWrite writes the document from the results of some of the parts.
func TestWrite(t *testing.T) {
	r := measured(t)
	if err := r.run(t.Context(), nil, true); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(r.doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 cores (a CPU), 24 GiB of memory, linux/amd64, go1.26", "| growth | `0123456789ab` | 1x | 2026-01-02 03:04 | 1m0s | 7.50 3.00 1.00 |", "The machine was busy",
		"Not measured yet: servers, calls, peers, durable, watch, connections, list.", "The part waiting is not complete: go test: exit status 1.",
		"rival store, per step at most 2µs | 8µs | **missed** |", "| 20.0 | met |", "1 of 2 measured goals are met.",
		"| Memory for each run that waits for people | 8000 B | 200 B | - |", "(performance/steps.svg)", "(performance/members.svg)", "(performance/waiting.svg)",
		"| memory | 100 | 9000 B |\n| memory | 1000 | 8000 B |", "&lt;tag>",
	} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("the document does not contain %q", want)
		}
	}
	for _, bad := range []string{"performance/list.svg", "/a/path"} {
		if bytes.Contains(b, []byte(bad)) {
			t.Errorf("the document contains %q", bad)
		}
	}
	if t.Failed() {
		t.Logf("%s", b)
	}
}

// TestSVG draws a line for each rival, in well-formed XML.
func TestSVG(t *testing.T) {
	r := measured(t)
	if err := r.write(); err != nil {
		t.Fatal(err)
	}
	for file, lines := range map[string]int{"steps": 2, "members": 1, "waiting": 2} {
		b, err := os.ReadFile(filepath.Join(r.dir, "performance", file+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(bytes.NewReader(b))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", file, err)
		}
		if n := strings.Count(string(b), "<g class="); n != lines {
			t.Errorf("%s has %d lines, want %d", file, n, lines)
		}
		if !bytes.Contains(b, []byte("prefers-color-scheme:dark")) || bytes.Contains(b, []byte("NaN")) || bytes.Contains(b, []byte("Inf")) {
			t.Errorf("%s:\n%s", file, b)
		}
	}
}

// TestDraw finds the points of a chart in a table.
func TestDraw(t *testing.T) {
	table := measure.Printed{Title: "a page of 50", Head: []string{"store", "tasks", "filter", "p50"}, Rows: [][]string{
		{"memory", "1000", "none", "2µs"}, {"memory", "1000000", "none", "3µs"}, {"memory", "1000", "agent", "9µs"}, {"sqlite", "1000", "none", "-"},
	}}
	for _, f := range figures() {
		if f.file != "list" {
			continue
		}
		c := f.draw([]measure.Printed{table})
		if len(c.lines) != 1 || len(c.lines[0].points) != 2 || c.lines[0].points[1] != (point{1e6, 3000}) {
			t.Errorf("lines %+v", c.lines)
		}
	}
}

// TestRun refuses unknown parts and an empty folder.
func TestRun(t *testing.T) {
	r := &report{out: io.Discard, parts: parts(), dir: t.TempDir(), doc: filepath.Join(t.TempDir(), "p.md")}
	if err := r.run(t.Context(), []string{"none"}, false); err == nil || !strings.Contains(err.Error(), "there is no part none; the parts are servers, ") {
		t.Errorf("error %v", err)
	}
	if err := r.run(t.Context(), nil, true); err == nil || !strings.Contains(err.Error(), "nothing has been measured") {
		t.Errorf("error %v", err)
	}
}

// TestMeasure runs a benchmark of this module, keeps its result, and does not run it again.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs a benchmark; run without -short")
	}
	t.Chdir("../..")
	var said bytes.Buffer
	r := measured(t)
	r.out, r.parts = &said, []part{
		{"growth", "Growth of a run", []run{{".", "./bench", "^BenchmarkPlace$", nil}}},
		{"none", "Nothing", []run{{".", "./bench/measure", "^BenchmarkNone$", nil}}},
	}
	if err := r.run(t.Context(), nil, false); err == nil || !strings.Contains(err.Error(), "not complete: none;") {
		t.Errorf("error %v", err)
	}
	got := r.read(r.parts[0])
	if got == nil || len(got.Tables) != 1 || len(got.Tables[0].Goals) != 1 || got.Tables[0].Goals[0].Got == "" || got.Machine.Cores < 1 || got.LoadEnd == "" {
		t.Errorf("results %+v", got)
	}
	if res := r.read(r.parts[1]); res == nil || !strings.Contains(res.Failed, "no table was printed") {
		t.Errorf("results %+v", res)
	}
	said.Reset()
	r.parts = r.parts[:1]
	if err := r.run(t.Context(), nil, false); err != nil || !strings.Contains(said.String(), "growth: measured at ") {
		t.Errorf("%v\n%s", err, &said)
	}
}
