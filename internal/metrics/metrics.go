// Package metrics measures what a server does: requests, runs, the store, push notifications and the work
// that waits. It uses the metric API of OpenTelemetry only. Package scrape serves the results.
//
// Values of labels are bounded: they never contain ids of tasks, contexts or callers, and of names that the
// configuration or other parties choose only a limited number, see Other. All methods are safe for
// concurrent use, and do nothing if their receiver is nil, which stands for a server without metrics.
package metrics

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Other is the value of a label in place of all further names once there are as many as the label may have.
const Other = "other"

// Limits of labels: how many names each of them has at most.
const (
	maxAgents = 100
	maxModels = 50
)

// instruments creates instruments and collects the errors.
type instruments struct {
	metric.Meter
	errs []error
}

func (i *instruments) counter(name, unit, text string) metric.Int64Counter {
	c, err := i.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
	i.errs = append(i.errs, err)
	return c
}

// total creates a counter without labels. It begins with 0, so that its first event is an increase.
func (i *instruments) total(name, unit, text string) metric.Int64Counter {
	c := i.counter(name, unit, text)
	c.Add(context.Background(), 0)
	return c
}

func (i *instruments) upDown(name, unit, text string) metric.Int64UpDownCounter {
	c, err := i.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
	i.errs = append(i.errs, err)
	return c
}

// seconds creates a histogram of durations.
func (i *instruments) seconds(name, text string, bounds ...float64) metric.Float64Histogram {
	h, err := i.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(bounds...))
	i.errs = append(i.errs, err)
	return h
}

func (i *instruments) gauge(name, unit, text string) metric.Int64ObservableGauge {
	g, err := i.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
	i.errs = append(i.errs, err)
	return g
}

func (i *instruments) age(name, text string) metric.Float64ObservableGauge {
	g, err := i.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(text))
	i.errs = append(i.errs, err)
	return g
}

func (i *instruments) ratio(name, text string) metric.Float64ObservableGauge {
	g, err := i.Float64ObservableGauge(name, metric.WithUnit("1"), metric.WithDescription(text))
	i.errs = append(i.errs, err)
	return g
}

func (i *instruments) err() error { return errors.Join(i.errs...) }

// values are the values of up to three labels.
type values [3]string

// labels makes the options of measurements, one for each combination of values that occurs.
type labels struct {
	keys []attribute.Key

	mu    sync.RWMutex
	known map[values]*options // guarded by mu
}

// options are the options of a measurement with certain labels.
type options struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newLabels(keys ...attribute.Key) *labels {
	return &labels{keys: keys, known: map[values]*options{}}
}

// of returns the options for values of the keys, in their order.
func (l *labels) of(v ...string) *options {
	var key values
	copy(key[:], v)
	l.mu.RLock()
	o := l.known[key]
	l.mu.RUnlock()
	if o != nil {
		return o
	}
	pairs := make([]attribute.KeyValue, len(l.keys))
	for i, k := range l.keys {
		pairs[i] = k.String(key[i])
	}
	set := metric.WithAttributeSet(attribute.NewSet(pairs...))
	o = &options{add: []metric.AddOption{set}, record: []metric.RecordOption{set}}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[key] = o
	return o
}

// begin sets a counter to 0 for values of the keys, so that the first event that has them is an increase.
func (l *labels) begin(c metric.Int64Counter, v ...string) {
	c.Add(context.Background(), 0, l.of(v...).add...)
}

// names are the names that a label may have: the first ones that occur.
type names struct {
	most int

	mu    sync.RWMutex
	known map[string]bool // guarded by mu
}

func newNames(most int) *names { return &names{most: most, known: map[string]bool{}} }

// name returns the name, or Other if there are too many.
func (n *names) name(name string) string {
	n.mu.RLock()
	known := n.known[name]
	n.mu.RUnlock()
	if known {
		return name
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known) >= n.most && !n.known[name] {
		return Other
	}
	n.known[name] = true
	return name
}
