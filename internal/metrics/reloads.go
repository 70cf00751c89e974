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
	count            metric.Int64Counter
	last, successful metric.Int64Gauge

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
	successful, err := i.Int64Gauge("team_server.config.last_reload.successful",
		metric.WithDescription("1 if the configuration had no faults when it was last read, 0 if it had: an earlier one is served."))
	i.errs = append(i.errs, err)
	r := &Reloads{
		count: i.counter("team_server.config.reloads", "{reload}", "Reloads of the configuration."), last: last, successful: successful, byResult: newLabels("result"),
	}
	if err := i.err(); err != nil {
		return nil, err
	}
	for _, result := range []string{ReloadApplied, ReloadUnchanged, ReloadRefused} {
		r.byResult.begin(r.count, result)
	}
	r.succeeded(context.Background(), read)
	return r, nil
}

// Ended counts a reload.
func (r *Reloads) Ended(ctx context.Context, result string) {
	if r == nil {
		return
	}
	r.count.Add(ctx, 1, r.byResult.of(result).add...)
	if result == ReloadRefused {
		r.successful.Record(ctx, 0)
		return
	}
	r.succeeded(ctx, time.Now())
}

// succeeded records that the configuration was read without faults.
func (r *Reloads) succeeded(ctx context.Context, at time.Time) {
	r.last.Record(ctx, at.Unix())
	r.successful.Record(ctx, 1)
}
