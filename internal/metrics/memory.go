package metrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// ObserveMemory observes what is held of the budget of memory whenever m is read. read returns the bytes that are
// held, and how often some were refused, by what they are for. stop ends the observation. It does nothing if m
// is nil.
func ObserveMemory(m metric.Meter, read func() (held, refused map[string]int64)) (stop func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	i := &instruments{Meter: m}
	held := i.gauge("team_server.memory.held", "By", "Estimated bytes of memory that are in use, of limits.max_bytes_in_flight, by what for.")
	refused, err := m.Int64ObservableCounter("team_server.memory.refused", metric.WithUnit("{refusal}"),
		metric.WithDescription("How often memory was refused because of limits.max_bytes_in_flight, by what for."))
	i.errs = append(i.errs, err)
	if err := i.err(); err != nil {
		return func() {}, err
	}
	r, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		now, before := read()
		for kind, n := range now {
			o.ObserveInt64(held, n, metric.WithAttributes(attribute.String("kind", kind)))
		}
		for kind, n := range before {
			o.ObserveInt64(refused, n, metric.WithAttributes(attribute.String("kind", kind)))
		}
		return nil
	}, held, refused)
	if err != nil {
		return func() {}, err
	}
	return func() { _ = r.Unregister() }, nil
}
