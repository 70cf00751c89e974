package metrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// ObserveAccounts observes what accounts have used of their limits whenever m is read, at most every five seconds. used
// returns, for each limit, the part of the account that has used most of it. fail is called with errors of used, after
// which there are no values. stop ends the observation. It does nothing if m is nil.
func ObserveAccounts(m metric.Meter, used func(context.Context) (map[string]float64, error), fail func(error)) (stop func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	u := &reading[map[string]float64]{read: used, fail: fail}
	i := &instruments{Meter: m}
	most := i.ratio("team_server.accounts.used", "Part of a limit on what accounts may spend that has been used by the account that has used most of it: 1 is all.")
	if err := i.err(); err != nil {
		return func() {}, err
	}
	r, err := m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		all, err := u.current(ctx)
		if err != nil {
			return nil //nolint:nilerr // fail has reported it, and other instruments have values
		}
		for limit, part := range all {
			o.ObserveFloat64(most, part, metric.WithAttributes(attribute.String("limit", limit)))
		}
		return nil
	}, most)
	if err != nil {
		return func() {}, err
	}
	return func() { _ = r.Unregister() }, nil
}
