// Package bench measures what the server adds to the layers below it, each time
// against a yardstick that runs in turn with it. See README.md.
package bench

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

// rounds is how often all rivals run in turn. Figures are medians of the
// rounds, ratios are medians of the ratios within a round.
const rounds = 5

// budget is how long one rival runs in one round.
type budget struct {
	time time.Duration
	ops  int // by each caller, instead of a time
}

// budgetOf reads -benchtime: a time, or so many operations by each caller.
func budgetOf(b *testing.B) budget {
	b.Helper()
	text := flag.Lookup("test.benchtime").Value.String()
	if n, isCount := strings.CutSuffix(text, "x"); isCount {
		ops, err := strconv.Atoi(n)
		if err != nil {
			b.Fatal(err)
		}
		return budget{ops: ops}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		b.Fatal(err)
	}
	return budget{time: d}
}

// call is one operation; n is different each time.
type call func(ctx context.Context, n int64) error

// rival is one of the things that are compared. Each round starts it afresh, so
// that none inherits what the one before it left in memory.
type rival struct {
	name  string
	start func(b *testing.B) (run call, stop func())
}

// figures are what one rival did in one round.
type figures struct {
	rate          float64 // operations a second
	p50, p99      time.Duration
	cpu           time.Duration // of the process, for one operation; client and server together
	allocs, bytes float64       // for one operation
}

// each is the time of one operation.
func (f figures) each() float64 { return float64(time.Second) / f.rate }

// race runs the rivals in turn, with c callers each, and returns their figures
// by rival and round.
func race(b *testing.B, w budget, c int, rivals []rival) [][]figures {
	b.Helper()
	all := make([][]figures, len(rivals))
	for range rounds {
		for i, r := range rivals {
			all[i] = append(all[i], r.measure(b, w, c))
		}
	}
	return all
}

// measure starts a rival, warms it up and lets it run.
func (r rival) measure(b *testing.B, w budget, c int) figures {
	b.Helper()
	run, stop := r.start(b)
	defer stop()
	warm := budget{ops: 100/c + 1}
	if w.ops > 0 {
		warm = budget{ops: 1}
	}
	if _, _, err := load(b.Context(), warm, c, 0, run); err != nil {
		b.Fatalf("%s: %v", r.name, err)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	took, times, err := load(b.Context(), w, c, 1<<40, run)
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	if err != nil {
		b.Fatalf("%s: %v", r.name, err)
	}
	n := float64(len(times))
	return figures{
		rate: n / took.Seconds(), p50: times[len(times)/2], p99: times[len(times)*99/100], cpu: time.Duration(float64(cpu) / n),
		allocs: float64(after.Mallocs-before.Mallocs) / n, bytes: float64(after.TotalAlloc-before.TotalAlloc) / n,
	}
}

// load makes calls from c callers until the budget is used up, numbered from
// first. It returns how long all took, and how long each took, shortest first.
func load(ctx context.Context, w budget, c int, first int64, run call) (took time.Duration, times []time.Duration, err error) {
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
func repeat(ctx context.Context, w budget, begin time.Time, first int64, run call) ([]time.Duration, error) {
	var times []time.Duration
	last := begin
	for n := 0; w.ops == 0 && last.Sub(begin) < w.time || n < w.ops; n++ {
		if err := run(ctx, first+int64(n)); err != nil {
			return times, fmt.Errorf("call %d: %w", n, err)
		}
		now := time.Now()
		times = append(times, now.Sub(last))
		last = now
	}
	return times, nil
}

// median of a figure over the rounds.
func median(all []figures, of func(figures) float64) float64 {
	values := make([]float64, len(all))
	for i, f := range all {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// ratio is the median over the rounds of a figure against the yardstick's.
func ratio(all, yardstick []figures, of func(figures) float64) float64 {
	values := make([]float64, len(all))
	for i := range all {
		values[i] = of(all[i]) / of(yardstick[i])
	}
	slices.Sort(values)
	return values[len(values)/2]
}
