package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/testkit/sample"
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
	if len(fs) != source.MaxFaults+1 || !strings.HasSuffix(last.Message, " more faults are not listed") {
		t.Errorf("%d faults, the last: %v", len(fs), last)
	}
	searched := 0
	for _, f := range fs[:len(fs)-1] {
		if f.Hint != "" {
			searched++
		}
	}
	if searched == 0 || searched > source.MaxSearches {
		t.Errorf("a similar name was searched for %d of %d faults, want at most %d", searched, len(fs), source.MaxSearches)
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

// TestCostlyDocuments: a document as large as the API takes is checked in the time that its size takes, whatever it nests
// and however long its lines are. When nobody waits for that any longer, it ends soon.
func TestCostlyDocuments(t *testing.T) {
	const size = 1 << 20
	fill := func(head, format string) string {
		var b strings.Builder
		b.WriteString(head)
		for i := 0; b.Len() < size; i++ {
			b.WriteString(strings.ReplaceAll(format, "N", strconv.Itoa(i)))
		}
		return b.String()
	}
	nest := func(head, begin, inner, end string) string {
		n := size / (len(begin) + len(end))
		return head + strings.Repeat(begin, n) + inner + strings.Repeat(end, n) + "\n"
	}
	const one = "version: v1\nagents: {e: {scripted: {steps: [{echo: true}]}}}\n"
	docs := map[string]string{
		"nested mappings": nest("version: v1\nagents: ", "{a: ", "", "}"),
		"nested lists":    nest("version: v1\nagents: ", "[", "", "]"),
		"nested groups":   nest(one+"teams: {t: {members: [{agent: e}], workflow: {steps: ", "[{parallel: ", "[]", "}]") + "}}}",
		"nested schema":   nest("version: v1\nagents: {a: {output_schema: ", "{properties: {a: ", "{}", "}}") + "}}",
		"secret words":    fill("version: v1\nagents: {", "token , "),
		"words and keys":  fill("version: v1\nagents: {", "api_key xN, ") + "a: 1}",
		"one long list":   fill("version: v1\nagents: {a: {model: m, tools: [", "tN, ") + "x]}}",
		"variables":       fill("version: v1\nagents: {a: {scripted: {steps: [{text: '", "${V_N}") + "'}]}}}",
		"many agents":     fill("version: v1\nagents:\n", "  aN: {scriptedd: {steps: [{echo: true}]}}\n"),
		"one key":         fill("version: v1\nagents:\n", "  a: {scripted: {steps: [{echo: true}]}}\n"),
	}
	names := slices.Sorted(maps.Keys(docs))
	for i := 0; i < len(names); i += sample.Stride() {
		doc := docs[names[i]]
		t.Run(names[i], func(t *testing.T) {
			checked := make(chan error, 1)
			go func() {
				_, err := Loader{Env: noEnv}.Parse("team.yaml", []byte(doc))
				checked <- err
			}()
			select {
			case err := <-checked:
				if err == nil {
					t.Error("no faults")
				}
			case <-time.After(2 * time.Minute): // a second on a free machine, and a quarter of an hour if it grows with the square
				t.Fatal("it takes too long")
			}
		})
	}
}

// TestChecksEndWithTheirContext: the checks of an addition return why nobody waits for them.
func TestChecksEndWithTheirContext(t *testing.T) {
	file := parsed(t, "version: v1\nagents: {e: {scripted: {steps: [{echo: true}]}}}\n")
	gone := errors.New("the client has left")
	ctx, leave := context.WithCancelCause(t.Context())
	leave(gone)
	team := []Addition{{Name: "t", Data: []byte("teams: {t: {members: [{agent: e}], workflow: {steps: [{id: s, agent: e}]}}}\n")}}
	if _, err := file.With(ctx, team); !errors.Is(err, gone) {
		t.Error(err)
	}
	both, err := file.With(t.Context(), team)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := both.With(t.Context(), nil); err != nil {
		t.Errorf("a file that was checked with an addition: %v", err)
	}
}
