// Package measure is what benchmarks share: rivals that run in turn, their figures,
// and the table of them. See ../README.md.
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

// Rounds is how often all rivals run in turn. Figures are medians of the
// rounds, ratios are medians of the ratios within a round.
const Rounds = 5

// Budget is how long one rival runs in one round.
type Budget struct {
	Time time.Duration
	Ops  int // by each caller, instead of a time
}

// BudgetOf reads -benchtime: a time, or so many operations by each caller.
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

// Call is one operation; n is different each time. It is called by many at the same time.
type Call func(ctx context.Context, n int64) error

// Rival is one of the things that are compared. Each round starts it afresh, so
// that none inherits what the one before it left in memory, and then stops it.
type Rival struct {
	Name  string
	Start func(b *testing.B) (run Call, stop func())
}

// Figures are what one rival did in one round.
type Figures struct {
	Rate          float64       // operations a second
	P50, P99      time.Duration // of one operation
	CPU           time.Duration // of the process, for one operation; client and server together
	Allocs, Bytes float64       // for one operation
}

// Each is the time of one operation.
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

// measure starts a rival, warms it up and lets it run.
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

// load makes calls from c callers until the budget is used up, numbered from
// first. It returns how long all took, and how long each took, shortest first.
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

// repeat is one caller.
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

// Median of a figure over the rounds.
func Median(all []Figures, of func(Figures) float64) float64 {
	values := make([]float64, len(all))
	for i, f := range all {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// Ratio is the median over the rounds of a figure against the yardstick's.
func Ratio(all, yardstick []Figures, of func(Figures) float64) float64 {
	values := make([]float64, len(all))
	for i := range all {
		values[i] = of(all[i]) / of(yardstick[i])
	}
	slices.Sort(values)
	return values[len(values)/2]
}
