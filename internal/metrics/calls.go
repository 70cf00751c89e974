package metrics

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/agentteams/team-server/internal/auth"
)

// noMethod is the method of requests that reach none: pages, health checks, unknown paths, and requests that
// are refused before their method is known.
const noMethod = "none"

// Calls measures the requests of all bindings.
type Calls struct {
	requests, signIns, limits metric.Int64Counter
	duration                  metric.Float64Histogram
	streams                   metric.Int64UpDownCounter

	byCode, byMethod, byReason, byLimit *labels
}

// NewCalls returns the instruments of a meter, or nil if m is nil.
func NewCalls(m metric.Meter) (*Calls, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // no metrics
	}
	i := &instruments{Meter: m}
	c := &Calls{
		requests: i.counter("team_server.requests", "{request}", "Requests that have ended; streams count at their end."),
		duration: i.seconds("team_server.request.duration", "Duration of requests until their answer is complete; of streams, how long they were open.",
			.001, .005, .025, .1, .25, 1, 5, 30, 300),
		streams: i.upDown("team_server.streams.open", "{stream}", "Streams that are open."),
		signIns: i.counter("team_server.sign_ins.refused", "{request}", "Requests whose credentials were refused."),
		limits:  i.counter("team_server.limits.hit", "{request}", "Requests that were refused because of a limit."),
		byCode:  newLabels("method", "binding", "code"), byMethod: newLabels("method", "binding"),
		byReason: newLabels("reason"), byLimit: newLabels("limit"),
	}
	if err := i.err(); err != nil {
		return nil, err
	}
	for _, why := range auth.Reasons {
		c.byReason.begin(c.signIns, word(why))
	}
	for _, limit := range limitsOf(requestLimits) {
		c.byLimit.begin(c.limits, limit)
	}
	return c, nil
}

// Ended counts a request. method is "" if it reached none, and code is the name of its gRPC status.
func (c *Calls) Ended(ctx context.Context, method, binding, code string, took time.Duration) {
	if c == nil {
		return
	}
	if method == "" {
		method = noMethod
	}
	c.requests.Add(ctx, 1, c.byCode.of(method, binding, code).add...)
	if method != noMethod {
		c.duration.Record(ctx, took.Seconds(), c.byMethod.of(method, binding).record...)
	}
}

// Streams adds n to the number of open streams.
func (c *Calls) Streams(ctx context.Context, method, binding string, n int64) {
	if c != nil {
		c.streams.Add(ctx, n, c.byMethod.of(method, binding).add...)
	}
}

// SignInRefused counts a request whose credentials were refused. reason is one of few.
func (c *Calls) SignInRefused(ctx context.Context, reason string) {
	if c != nil {
		c.signIns.Add(ctx, 1, c.byReason.of(word(reason)).add...)
	}
}

// LimitHit counts a request that was refused because of a limit.
func (c *Calls) LimitHit(ctx context.Context, limit string) {
	if c != nil {
		c.limits.Add(ctx, 1, c.byLimit.of(limitName(limit)).add...)
	}
}
