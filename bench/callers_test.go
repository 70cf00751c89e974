package bench

import (
	"fmt"
	"strings"
	"testing"
)

func rate(f figures) float64 { return f.rate }
func p50(f figures) float64  { return float64(f.p50) }
func p99(f figures) float64  { return float64(f.p99) }

// callers are how many call at the same time.
func callers() []int { return []int{1, 8, 64} }

// servers compares rivals that answer calls at each number of callers; the
// first one is the yardstick.
func servers(b *testing.B, t *table, rivals ...rival) {
	t.head = "c\trival\treq/s\tp50\tp99\tcpu/op\tallocs/op\tB/op\txRPS\txP99\txcpu\txallocs"
	w := budgetOf(b)
	for _, c := range callers() {
		b.Run(fmt.Sprintf("c=%d", c), func(b *testing.B) {
			all := race(b, w, c, rivals)
			b.ReportMetric(0, "ns/op") // of the whole race: says nothing
			for i, r := range rivals {
				t.server(c, r.name, all[i], all[0])
				if i > 0 {
					report(b, r.name, all[i], all[0])
				}
			}
		})
	}
	t.print()
}

// server adds what a rival did with c callers.
func (t *table) server(c int, name string, all, yardstick []figures) {
	t.add("%d\t%s\t%.0f\t%s\t%s\t%s\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f", c, name, median(all, rate),
		short(median(all, p50)), short(median(all, p99)), short(median(all, cpu)), median(all, allocs), median(all, size),
		ratio(all, yardstick, rate), ratio(all, yardstick, p99), ratio(all, yardstick, cpu), ratio(all, yardstick, allocs))
}

// report gives the ratios of a rival to the test framework.
func report(b *testing.B, name string, all, yardstick []figures) {
	unit := strings.ReplaceAll(name, " ", "-")
	b.ReportMetric(ratio(all, yardstick, rate), unit+"-xRPS")
	b.ReportMetric(ratio(all, yardstick, p99), unit+"-xP99")
	b.ReportMetric(median(all, allocs), unit+"-allocs/op")
}
