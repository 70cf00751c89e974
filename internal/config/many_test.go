package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestManyUnknownNames: a document with thousands of names that are not defined, among thousands that are, is
// checked in the time that its size takes: only for some of them a similar name is searched.
func TestManyUnknownNames(t *testing.T) {
	const n = 3000
	var b strings.Builder
	b.WriteString("version: v2\nagents:\n")
	for i := range n {
		fmt.Fprintf(&b, "  agent-with-a-long-name-number-%d: {scripted: {steps: [{echo: true}]}}\n", i)
	}
	b.WriteString("teams:\n  t:\n    members:\n")
	for i := range n {
		fmt.Fprintf(&b, "      - {agent: unknown-with-a-long-name-no-%d}\n", i)
	}
	b.WriteString("    broadcast: {}\n")
	began := time.Now()
	fs := faultsOf(t, b.String())
	t.Logf("%v for %d KiB", time.Since(began), b.Len()>>10)
	if len(fs) != maxFaults+1 || !strings.HasSuffix(fs[len(fs)-1].Message, " more faults are not listed") || time.Since(began) > 10*time.Second {
		t.Errorf("%d faults after %v, the last: %v", len(fs), time.Since(began), fs[len(fs)-1])
	}
}

// TestManySteps: steps in groups count as well.
func TestManySteps(t *testing.T) {
	group := strings.TrimSuffix(strings.Repeat("{agent: e}, ", 300), ", ")
	fs := faultsOf(t, "version: v2\nagents: {e: {scripted: {steps: [{echo: true}]}}}\nteams: {t: {members: [{agent: e}], workflow: {steps: [{parallel: ["+group+"]}]}}}\n")
	if len(fs) != 1 || fs[0].Message != "a workflow has at most 256 steps, with those in groups" {
		t.Errorf("%.300v", fs)
	}
}
