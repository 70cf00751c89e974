// Package measure is used by the benchmarks: it runs rivals in turn, measures them, and prints
// the figures as a table. See ../README.md.
package measure

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Rounds is the number of rounds. In each round every rival runs once. Printed figures are
// medians over the rounds; printed ratios are medians of the ratios in each round.
const Rounds = 5

// Budget limits one rival in one round, by time or by the number of calls.
type Budget struct {
	Time time.Duration
	Ops  int // number of calls of each caller; 0 means that Time is the limit
}

// BudgetOf returns the budget that -benchtime sets: a duration, or with the suffix x the number
// of calls of each caller.
func BudgetOf(b *testing.B) Budget {
	b.Helper()
	text := flag.Lookup("test.benchtime").Value.String()
	if n, isCount := strings.CutSuffix(text, "x"); isCount {
		ops, err := strconv.Atoi(n)
		if err != nil {
			b.Fatal(err)
		}
		return Budget{Ops: ops}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		b.Fatal(err)
	}
	return Budget{Time: d}
}

// Call performs one operation. n is different for each call. It may be called concurrently.
type Call func(ctx context.Context, n int64) error

// Rival is an implementation that is compared with others. Each round starts it and stops it
// again, so that it does not reuse memory of the round before.
type Rival struct {
	Name  string
	Start func(b *testing.B) (run Call, stop func())
}

// Figures holds what was measured of one rival in one round.
type Figures struct {
	Rate          float64       // operations per second
	P50, P99      time.Duration // median and 99th percentile of the duration of an operation
	CPU           time.Duration // CPU time of the process per operation, of client and server together
	Allocs, Bytes float64       // number and size of the allocations per operation
}

// Each returns the elapsed time divided by the number of operations, in nanoseconds.
func (f Figures) Each() float64 { return float64(time.Second) / f.Rate }

// Race runs the rivals in turn, with c callers each, and returns their figures
// by rival and round. An error of a call ends the benchmark.
func Race(b *testing.B, w Budget, c int, rivals []Rival) [][]Figures {
	b.Helper()
	all := make([][]Figures, len(rivals))
	for range Rounds {
		for i, r := range rivals {
			all[i] = append(all[i], r.measure(b, w, c))
		}
	}
	return all
}

// measure starts a rival, warms it up, runs it until w is used up, and returns its figures.
func (r Rival) measure(b *testing.B, w Budget, c int) Figures {
	b.Helper()
	run, stop := r.Start(b)
	defer stop()
	warm := Budget{Ops: 100/c + 1}
	if w.Ops > 0 {
		warm = Budget{Ops: 1}
	}
	if _, _, err := load(b.Context(), warm, c, 0, run); err != nil {
		b.Fatalf("%s: %v", r.Name, err)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := CPUTime()
	took, times, err := load(b.Context(), w, c, 1<<40, run)
	cpu = CPUTime() - cpu
	runtime.ReadMemStats(&after)
	if err != nil {
		b.Fatalf("%s: %v", r.Name, err)
	}
	n := float64(len(times))
	return Figures{
		Rate: n / took.Seconds(), P50: times[len(times)/2], P99: times[len(times)*99/100], CPU: time.Duration(float64(cpu) / n),
		Allocs: float64(after.Mallocs-before.Mallocs) / n, Bytes: float64(after.TotalAlloc-before.TotalAlloc) / n,
	}
}

// load makes calls from c concurrent callers until the budget is used up. The numbers of the
// calls begin at first. It returns the total time, and the duration of each call, sorted.
func load(ctx context.Context, w Budget, c int, first int64, run Call) (took time.Duration, times []time.Duration, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	begin := time.Now()
	for i := range c {
		wg.Go(func() {
			own, oneErr := repeat(ctx, w, begin, first+int64(i)<<30, run)
			mu.Lock()
			defer mu.Unlock()
			times = append(times, own...)
			if err == nil {
				err = oneErr
			}
		})
	}
	wg.Wait()
	took = time.Since(begin)
	slices.Sort(times)
	return took, times, err
}

// repeat makes the calls of one caller, one after the other, and returns their durations.
func repeat(ctx context.Context, w Budget, begin time.Time, first int64, run Call) ([]time.Duration, error) {
	var times []time.Duration
	last := begin
	for n := 0; w.Ops == 0 && last.Sub(begin) < w.Time || n < w.Ops; n++ {
		if err := run(ctx, first+int64(n)); err != nil {
			return times, fmt.Errorf("call %d: %w", n, err)
		}
		now := time.Now()
		times = append(times, now.Sub(last))
		last = now
	}
	return times, nil
}

// Median returns the median of a figure over the rounds.
func Median(all []Figures, of func(Figures) float64) float64 {
	values := make([]float64, len(all))
	for i, f := range all {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// Ratio returns the median over the rounds of a figure divided by the same figure of the
// yardstick.
func Ratio(all, yardstick []Figures, of func(Figures) float64) float64 {
	values := make([]float64, len(all))
	for i := range all {
		values[i] = of(all[i]) / of(yardstick[i])
	}
	slices.Sort(values)
	return values[len(values)/2]
}
