package metrics

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/metric"
)

// Pushes measures the deliveries of push notifications.
type Pushes struct {
	delivered, failed, dropped metric.Int64Counter

	byReason *labels
}

// NewPushes returns the instruments of a meter, or nil if m is nil.
func NewPushes(m metric.Meter) (*Pushes, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // no metrics
	}
	i := &instruments{Meter: m}
	return &Pushes{
		delivered: i.total("team_server.push.delivered", "{notification}", "Push notifications that were delivered."),
		failed:    i.counter("team_server.push.failed", "{attempt}", "Attempts to deliver a push notification that have failed."),
		dropped:   i.total("team_server.push.dropped", "{notification}", "Push notifications that were given up."),
		byReason:  newLabels("reason"),
	}, i.err()
}

// Delivered counts a notification that was delivered.
func (p *Pushes) Delivered(ctx context.Context) {
	if p != nil {
		p.delivered.Add(ctx, 1)
	}
}

// Failed counts an attempt that has failed. reason is one of few texts.
func (p *Pushes) Failed(ctx context.Context, reason string) {
	if p != nil {
		p.failed.Add(ctx, 1, p.byReason.of(word(reason)).add...)
	}
}

// Dropped counts a notification that was given up.
func (p *Pushes) Dropped(ctx context.Context) {
	if p != nil {
		p.dropped.Add(ctx, 1)
	}
}

// word returns a text as the value of a label.
func word(text string) string { return strings.ReplaceAll(text, " ", "_") }
