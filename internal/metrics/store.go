package metrics

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// Store measures the operations of a store.
type Store struct {
	duration  metric.Float64Histogram
	groups    metric.Int64Histogram
	takeovers metric.Int64Counter

	byOperation *labels
}

// NewStore returns the instruments of a meter, or nil if m is nil.
func NewStore(m metric.Meter) (*Store, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // no metrics
	}
	i := &instruments{Meter: m}
	groups, err := i.Int64Histogram("team_server.store.group.size", metric.WithUnit("{change}"),
		metric.WithDescription("Changes that were written in one transaction."), metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64, 128, 256))
	i.errs = append(i.errs, err)
	return &Store{
		duration: i.seconds("team_server.store.operation.duration", "Duration of operations of the store; group is a transaction with its sync, commit the wait for one.",
			.0005, .001, .0025, .005, .01, .025, .1, .5, 2.5, 10),
		groups: groups, takeovers: i.total("team_server.lease.takeovers", "{run}", "Runs that this replica took over because the lease of another had expired."),
		byOperation: newLabels("operation"),
	}, i.err()
}

// Time returns the function that measures an operation at its end. operation is one of few.
func (s *Store) Time(ctx context.Context, operation string) (done func()) {
	if s == nil {
		return func() {}
	}
	begin := time.Now()
	return func() { s.duration.Record(ctx, time.Since(begin).Seconds(), s.byOperation.of(operation).record...) }
}

// Group measures the size of a group of changes.
func (s *Store) Group(ctx context.Context, changes int) {
	if s != nil {
		s.groups.Record(ctx, int64(changes))
	}
}

// TookOver counts runs whose lease had expired.
func (s *Store) TookOver(ctx context.Context, runs int) {
	if s != nil && runs > 0 {
		s.takeovers.Add(ctx, int64(runs))
	}
}
