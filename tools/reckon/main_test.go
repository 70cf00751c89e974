package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestDocument: docs/scaling.md shows what the program prints.
func TestDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/scaling.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "\ngo run ./tools/reckon")
	args, rest, _ := strings.Cut(rest, "\n```\n\n```text\n")
	want, _, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatal("docs/scaling.md does not run the program and show what it prints")
	}
	var got bytes.Buffer
	if err := run(strings.Fields(args), &got); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("docs/scaling.md shows\n%s\nwant\n%s", want, got.String())
	}
}

// TestRun: needs grow with the rates, and wrong flags are refused.
func TestRun(t *testing.T) {
	var few, more bytes.Buffer
	for out, rate := range map[*bytes.Buffer]string{&few: "1", &more: "100000"} {
		if err := run([]string{"-per-second=" + rate}, out); err != nil {
			t.Fatal(err)
		}
	}
	if few.String() == more.String() {
		t.Error("the rate changes nothing")
	}
	for _, kinds := range []string{"instant", "instant=0.5", "unknown=1", "instant=-1"} {
		if err := run([]string{"-kinds=" + kinds}, &few); err == nil {
			t.Errorf("-kinds=%s is accepted", kinds)
		}
	}
}

// TestPartitions: what is scarcest decides how many databases there are.
func TestPartitions(t *testing.T) {
	e := expected{cores: 8, wal: 50e6, disk: 1e12}
	for want, d := range map[string]database{
		"disk": {disk: 2.5e12, wal: 60e6, cores: 2}, "WAL": {disk: 1e12, wal: 110e6, cores: 9}, "CPU": {disk: 1e12, cores: 17},
	} {
		if n, why := e.partitions(d); n != 3 || why != want {
			t.Errorf("%+v: %d because of %s, want 3 because of %s", d, n, why, want)
		}
	}
}
