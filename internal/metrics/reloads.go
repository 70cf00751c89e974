package metrics

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// Results of reloads of the configuration.
const (
	ReloadApplied   = "applied"
	ReloadUnchanged = "unchanged"
	ReloadRefused   = "refused"
)

// Reloads measures the reloads of the configuration of a server.
type Reloads struct {
	count metric.Int64Counter
	last  metric.Int64Gauge

	byResult *labels
}

// NewReloads returns the instruments of a meter, or nil if m is nil. The configuration was read at the time that is
// given.
func NewReloads(m metric.Meter, read time.Time) (*Reloads, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // no metrics
	}
	i := &instruments{Meter: m}
	last, err := i.Int64Gauge("team_server.config.last_reload.timestamp", metric.WithUnit("s"),
		metric.WithDescription("Time at which the configuration was last read without faults, in Unix seconds."))
	i.errs = append(i.errs, err)
	r := &Reloads{
		count: i.counter("team_server.config.reloads", "{reload}", "Reloads of the configuration."), last: last, byResult: newLabels("result"),
	}
	if err := i.err(); err != nil {
		return nil, err
	}
	r.last.Record(context.Background(), read.Unix())
	return r, nil
}

// Ended counts a reload.
func (r *Reloads) Ended(ctx context.Context, result string) {
	if r == nil {
		return
	}
	r.count.Add(ctx, 1, r.byResult.of(result).add...)
	if result != ReloadRefused {
		r.last.Record(ctx, time.Now().Unix())
	}
}
