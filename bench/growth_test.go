package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/bench/measure"
)

// growth is how the costs of rivals grow with a size. The first rival is the
// yardstick; all sizes of all rivals run in turn within a round.
type growth struct {
	unit   string // what there is more of
	sizes  []int
	from   int // what one more costs is taken between this size and the last
	rivals func(b *testing.B, n int) []measure.Rival
}

// compare runs the rivals and adds a row for each of them to the table.
func (g growth) compare(b *testing.B, t *measure.Table) {
	b.Helper()
	var rivals []measure.Rival
	for _, n := range g.sizes {
		rivals = append(rivals, g.rivals(b, n)...)
	}
	all := measure.Race(b, share(measure.BudgetOf(b), len(g.sizes)), 1, rivals)
	b.ReportMetric(0, "ns/op") // of the whole race: says nothing

	kinds := len(rivals) / len(g.sizes)
	of := func(size, kind int) []measure.Figures { return all[size*kinds+kind] }
	last := len(g.sizes) - 1
	more := float64(g.sizes[last] - g.sizes[g.from])
	step := func(kind int, what func(measure.Figures) float64) float64 {
		return slope(of(g.from, kind), of(last, kind), what, more)
	}
	t.Head = fmt.Sprintf("rival\t%s\tper %s\tallocs/%s\tover %s\tcpu over %[4]s\tallocs over %[4]s\tx%[4]s\txcpu", g.heads(), g.unit, g.unit, rivals[0].Name)
	for k := range kinds {
		var times []string
		for i := range g.sizes {
			times = append(times, measure.Short(measure.Median(of(i, k), measure.Each)))
		}
		t.Add("%s\t%s\t%s\t%.1f\t%s\t%s\t%.1f\t%.1f\t%.1f", rivals[k].Name, strings.Join(times, "\t"), measure.Short(step(k, measure.Each)), step(k, measure.Allocs),
			measure.Short(step(k, measure.Each)-step(0, measure.Each)),
			measure.Short(step(k, measure.CPU)-step(0, measure.CPU)), step(k, measure.Allocs)-step(0, measure.Allocs),
			step(k, measure.Each)/step(0, measure.Each), step(k, measure.CPU)/step(0, measure.CPU))
		b.ReportMetric(step(k, measure.Each), rivals[k].Name+"-ns/"+g.unit)
		b.ReportMetric(step(k, measure.Allocs), rivals[k].Name+"-allocs/"+g.unit)
	}
	t.Print()
}

func (g growth) heads() string {
	heads := make([]string, len(g.sizes))
	for i, n := range g.sizes {
		heads[i] = fmt.Sprint(n)
	}
	return strings.Join(heads, "\t")
}

// share is the n-th part of a budget of time.
func share(w measure.Budget, n int) measure.Budget {
	return measure.Budget{Time: w.Time / time.Duration(n), Ops: w.Ops}
}

// always is a rival whose rounds share what they start with.
func always(name string, run measure.Call) measure.Rival {
	return measure.Rival{Name: name, Start: func(*testing.B) (measure.Call, func()) { return run, func() {} }}
}

// slope is what one more of something costs.
func slope(short, long []measure.Figures, of func(measure.Figures) float64, more float64) float64 {
	values := make([]float64, len(short))
	for i := range short {
		values[i] = (of(long[i]) - of(short[i])) / more
	}
	slices.Sort(values)
	return values[len(values)/2]
}
