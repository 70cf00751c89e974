package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentteams/team-server/bench/measure"
)

func rate(f measure.Figures) float64 { return f.Rate }
func p50(f measure.Figures) float64  { return float64(f.P50) }
func p99(f measure.Figures) float64  { return float64(f.P99) }

// callers are how many call at the same time.
func callers() []int { return []int{1, 8, 64} }

// servers compares rivals that answer calls at each number of callers; the
// first one is the yardstick.
func servers(b *testing.B, t *measure.Table, rivals ...measure.Rival) {
	t.Head = "c\trival\treq/s\tp50\tp99\tcpu/op\tallocs/op\tB/op\txRPS\txP99\txcpu\txallocs"
	w := measure.BudgetOf(b)
	for _, c := range callers() {
		b.Run(fmt.Sprintf("c=%d", c), func(b *testing.B) {
			all := measure.Race(b, w, c, rivals)
			b.ReportMetric(0, "ns/op") // of the whole race: says nothing
			for i, r := range rivals {
				addServer(t, c, r.Name, all[i], all[0])
				if i > 0 {
					report(b, r.Name, all[i], all[0])
				}
			}
		})
	}
	t.Print()
}

// addServer adds what a rival did with c callers.
func addServer(t *measure.Table, c int, name string, all, yardstick []measure.Figures) {
	t.Add("%d\t%s\t%.0f\t%s\t%s\t%s\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f", c, name, measure.Median(all, rate),
		measure.Short(measure.Median(all, p50)), measure.Short(measure.Median(all, p99)),
		measure.Short(measure.Median(all, measure.CPU)), measure.Median(all, measure.Allocs), measure.Median(all, measure.Bytes),
		measure.Ratio(all, yardstick, rate), measure.Ratio(all, yardstick, p99), measure.Ratio(all, yardstick, measure.CPU), measure.Ratio(all, yardstick, measure.Allocs))
}

// report gives the ratios of a rival to the test framework.
func report(b *testing.B, name string, all, yardstick []measure.Figures) {
	unit := strings.ReplaceAll(name, " ", "-")
	b.ReportMetric(measure.Ratio(all, yardstick, rate), unit+"-xRPS")
	b.ReportMetric(measure.Ratio(all, yardstick, p99), unit+"-xP99")
	b.ReportMetric(measure.Median(all, measure.Allocs), unit+"-allocs/op")
}
