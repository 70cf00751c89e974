package tracing

import (
	"fmt"
	"slices"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/collector"
	"github.com/agentteams/team-server/tests/rig"
)

const benchTeam = `
teams: {desk: {members: [{agent: echo}], workflow: {steps: [{id: a, agent: echo}, {id: b, agent: echo, after: [a]}, {id: c, agent: echo, after: [b]}]}}}
`

// BenchmarkSend sends messages to a team with three steps on servers without variables of OpenTelemetry (none), with
// traces turned off by one, with traces of which none is sampled, and with traces that are exported. The servers take
// turns, and the metrics are the ratios of the medians to that of none.
func BenchmarkSend(b *testing.B) {
	kinds := []string{"none", "off", "unsampled", "on"}
	to := collector.New(b)
	clients := map[string]rig.Client{}
	for _, kind := range kinds {
		set := map[string]map[string]string{
			"off":       {"OTEL_EXPORTER_OTLP_ENDPOINT": to.URL, "OTEL_TRACES_EXPORTER": "none"},
			"unsampled": {"OTEL_EXPORTER_OTLP_ENDPOINT": to.URL, "OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "always_off"},
			"on":        {"OTEL_EXPORTER_OTLP_ENDPOINT": to.URL, "OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "always_on"},
		}[kind]
		for name, value := range set {
			b.Setenv(name, value)
		}
		r, err := startedWith(b, benchTeam, &lines{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := r.Stop(); err != nil {
				b.Error(err)
			}
		})
		clients[kind] = rig.NewREST(rig.Target{HTTP: "http://" + r.HTTP})
	}
	took := map[string][]time.Duration{}
	n := 0
	send := func(kind string) {
		n++
		begin := time.Now()
		resp, err := clients[kind].Send(b.Context(), rig.Text("desk", fmt.Sprint("m", n), "x"))
		if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			b.Fatal(resp, err)
		}
		took[kind] = append(took[kind], time.Since(begin))
	}
	for range 200 { // until connections, caches and the heap have settled
		for _, kind := range kinds {
			send(kind)
		}
	}
	clear(took)
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		for j := range kinds {
			send(kinds[(i+j)%len(kinds)])
		}
	}
	for _, kind := range kinds {
		slices.Sort(took[kind])
	}
	median := func(kind string) float64 { return float64(took[kind][len(took[kind])/2]) }
	for _, kind := range kinds[1:] {
		b.ReportMetric(median(kind)/median("none"), kind+"/none")
	}
	b.ReportMetric(median("none"), "ns/none")
}
