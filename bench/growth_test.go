package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// growth is how the costs of rivals grow with a size. The first rival is the
// yardstick; all sizes of all rivals run in turn within a round.
type growth struct {
	unit   string // what there is more of
	sizes  []int
	from   int // what one more costs is taken between this size and the last
	rivals func(b *testing.B, n int) []rival
}

// compare runs the rivals and adds a row for each of them to the table.
func (g growth) compare(b *testing.B, t *table) {
	b.Helper()
	var rivals []rival
	for _, n := range g.sizes {
		rivals = append(rivals, g.rivals(b, n)...)
	}
	all := race(b, budgetOf(b).share(len(g.sizes)), 1, rivals)
	b.ReportMetric(0, "ns/op") // of the whole race: says nothing

	kinds := len(rivals) / len(g.sizes)
	of := func(size, kind int) []figures { return all[size*kinds+kind] }
	last := len(g.sizes) - 1
	more := float64(g.sizes[last] - g.sizes[g.from])
	step := func(kind int, what func(figures) float64) float64 {
		return slope(of(g.from, kind), of(last, kind), what, more)
	}
	t.head = fmt.Sprintf("rival\t%s\tper %s\tallocs/%s\tover %s\tcpu over %[4]s\tallocs over %[4]s\tx%[4]s\txcpu", g.heads(), g.unit, g.unit, rivals[0].name)
	for k := range kinds {
		var times []string
		for i := range g.sizes {
			times = append(times, short(median(of(i, k), each)))
		}
		t.add("%s\t%s\t%s\t%.1f\t%s\t%s\t%.1f\t%.1f\t%.1f", rivals[k].name, strings.Join(times, "\t"), short(step(k, each)), step(k, allocs),
			short(step(k, each)-step(0, each)), short(step(k, cpu)-step(0, cpu)), step(k, allocs)-step(0, allocs), step(k, each)/step(0, each), step(k, cpu)/step(0, cpu))
		b.ReportMetric(step(k, each), rivals[k].name+"-ns/"+g.unit)
		b.ReportMetric(step(k, allocs), rivals[k].name+"-allocs/"+g.unit)
	}
	t.print()
}

func (g growth) heads() string {
	heads := make([]string, len(g.sizes))
	for i, n := range g.sizes {
		heads[i] = fmt.Sprint(n)
	}
	return strings.Join(heads, "\t")
}

// share is the n-th part of a budget of time.
func (w budget) share(n int) budget { return budget{time: w.time / time.Duration(n), ops: w.ops} }

// always is a rival whose rounds share what they start with.
func always(name string, run call) rival {
	return rival{name, func(*testing.B) (call, func()) { return run, func() {} }}
}

// slope is what one more of something costs.
func slope(short, long []figures, of func(figures) float64, more float64) float64 {
	values := make([]float64, len(short))
	for i := range short {
		values[i] = (of(long[i]) - of(short[i])) / more
	}
	slices.Sort(values)
	return values[len(values)/2]
}
