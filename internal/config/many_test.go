package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestManyUnknownNames: a document with thousands of names that are not defined, among thousands that are, is
// checked in the time that its size takes: only for some of them a similar name is searched.
func TestManyUnknownNames(t *testing.T) {
	const n = 3000
	var b strings.Builder
	b.WriteString("version: v1\nagents:\n")
	for i := range n {
		fmt.Fprintf(&b, "  agent-with-a-long-name-number-%d: {scripted: {steps: [{echo: true}]}}\n", i)
	}
	b.WriteString("teams:\n  t:\n    members:\n")
	for i := range n {
		fmt.Fprintf(&b, "      - {agent: unknown-with-a-long-name-no-%d}\n", i)
	}
	b.WriteString("    broadcast: {}\n")
	fs := faultsOf(t, b.String())
	last := fs[len(fs)-1]
	if len(fs) != maxFaults+1 || !strings.HasSuffix(last.Message, " more faults are not listed") {
		t.Errorf("%d faults, the last: %v", len(fs), last)
	}
	searched := 0
	for _, f := range fs[:len(fs)-1] {
		if f.Hint != "" {
			searched++
		}
	}
	if searched == 0 || searched > maxSearches {
		t.Errorf("a similar name was searched for %d of %d faults, want at most %d", searched, len(fs), maxSearches)
	}
}

// TestManySteps: steps in groups count as well.
func TestManySteps(t *testing.T) {
	group := strings.TrimSuffix(strings.Repeat("{agent: e}, ", 300), ", ")
	fs := faultsOf(t, "version: v1\nagents: {e: {scripted: {steps: [{echo: true}]}}}\nteams: {t: {members: [{agent: e}], workflow: {steps: [{parallel: ["+group+"]}]}}}\n")
	if len(fs) != 1 || fs[0].Message != "a workflow has at most 256 steps, with those in groups" {
		t.Errorf("%.300v", fs)
	}
}
