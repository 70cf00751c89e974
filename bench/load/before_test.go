//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/agentteams/team-server/bench/measure"
	"github.com/agentteams/team-server/internal/testkit/child"
)

const (
	// beforeVariable names the program of an earlier state of the sources.
	beforeVariable = "BENCH_BEFORE"
	// beforeRounds is how often both are measured.
	beforeRounds = 7
)

// BenchmarkBefore compares the throughput of small tasks with that of the program that BENCH_BEFORE names. The two run
// in turn, each round on fresh stores, and the one that begins alternates.
func BenchmarkBefore(b *testing.B) {
	before := os.Getenv(beforeVariable)
	if before == "" {
		b.Skip(beforeVariable + " names no program to compare with")
	}
	w := measure.BudgetOf(b)
	c := contest{callers: []int{1, 64}, load: load{time: cmp.Or(w.Time, maxTime), calls: 64 * w.Ops}, warm: 200, rounds: beforeRounds}
	now := child.Build(b, repository, "./cmd/team-server")
	t := &measure.Table{
		Title: fmt.Sprintf("small tasks, now and before, medians of %d rounds in turn", c.rounds), Once: true,
		Head: "callers\tstore\ttasks/s\tbefore\tratio\tleast\tgreatest\txcpu",
		Goals: []string{
			"goal before: callers=64, store=sqlite: ratio >= 0.97", "goal before: callers=64, store=postgres: ratio >= 0.97",
			"ratio: median of the ratios of the rounds, with the least and the greatest of them; xcpu: ratio of the time of the processor of a task",
		},
	}
	for _, store := range []string{"memory", "sqlite", "postgres"} {
		var both []*entrant
		for _, path := range []string{now, before} {
			start, err := built(path, places[store])(b)
			if err != nil {
				b.Fatal(err)
			}
			both = append(both, &entrant{start: start, figures: map[int][]measure.Figures{}})
		}
		for i := range c.rounds {
			for j := range both {
				if err := c.round(b, both[(i+j)%2]); err != nil {
					b.Fatal(err)
				}
			}
		}
		for _, n := range c.callers {
			a, z := both[0].figures[n], both[1].figures[n]
			var ratios []float64
			for i := range a {
				ratios = append(ratios, a[i].Rate/z[i].Rate)
			}
			t.Add("%d\t%s\t%.0f\t%.0f\t%.3f\t%.3f\t%.3f\t%.3f", n, store, measure.Median(a, rate), measure.Median(z, rate),
				measure.Ratio(a, z, rate), slices.Min(ratios), slices.Max(ratios), measure.Ratio(a, z, measure.CPU))
		}
	}
	b.ReportMetric(0, "ns/op") // of all of it: says nothing
	t.Print()
}
