package server

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"sync"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/push"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/server/reduce"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/tracing"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
)

// notifier delivers push notifications.
type notifier struct {
	config   push.Config
	settings *settings.Live
	out      *egress.Dialer
	changed  chan struct{} // holds one signal: the settings have changed
}

// newNotifier returns a notifier.
func newNotifier(c *Config, live *settings.Live, h *a2a.Handler, by *auth.Server, measure *metrics.Pushes, traces *tracing.Pushes) (*notifier, error) {
	out, err := egress.New(egress.Config{Allow: func(ctx context.Context, addr netip.AddrPort) error { return live.Load().Guard.Allow(ctx, addr) }})
	if err != nil {
		return nil, fmt.Errorf("push notifications: %w", err)
	}
	t := &notifier{settings: live, out: out, changed: make(chan struct{}, 1)}
	base := func() string { return live.Load().BaseURL }
	t.config = push.Config{
		Pushes: c.Store, Outbox: h.Outbox, Client: out.HTTPClient(), Allowed: by.Holds, Old: oldBody(c.Store, base),
		Encode: func(m proto.Message) ([]byte, error) { return wire.Marshal(reduce.Reduce(m, base())) },
		Sign:   t.sign, Version: cmp.Or(c.Version, "dev"), Policy: c.Push, Metrics: measure, Traces: traces, Log: c.Log.Named("push"),
	}
	return t, nil
}

// reloaded applies other settings.
func (t *notifier) reloaded() {
	t.out.Close() // idle connections may lead to addresses that are not allowed any more
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// sign returns the signatures of a notification, none if notifications are not signed.
func (t *notifier) sign(payload []byte, url string) ([]string, error) {
	if sign := t.settings.Load().Signer; sign != nil {
		return sign.SignNotification(payload, url)
	}
	return nil, nil
}

// off reports whether push notifications are turned off.
func (t *notifier) off() bool { return !t.settings.Load().GetPush().GetEnabled() }

// serve delivers notifications until ctx ends, except while they are turned off.
func (t *notifier) serve(ctx context.Context) {
	defer t.out.Close()
	for ctx.Err() == nil {
		off := t.off()
		serving, stop := context.WithCancel(ctx)
		var delivering sync.WaitGroup
		if !off {
			delivering.Go(func() { push.New(t.config).Serve(serving) })
		}
		for ctx.Err() == nil && t.off() == off {
			select {
			case <-t.changed:
			case <-ctx.Done():
			}
		}
		stop()
		delivering.Wait()
	}
}

// firstEvent returns a function that reads the first event of a run.
func firstEvent(s runs.Store) func(context.Context, runs.Key) (*teamv1.Event, error) {
	return func(ctx context.Context, run runs.Key) (*teamv1.Event, error) {
		page, err := s.Events(ctx, run, 0, 1)
		if err != nil || len(page) == 0 {
			return nil, err
		}
		return page[0].Event, nil
	}
}

// oldBody returns the function that encodes the body of notifications for webhooks that were
// registered over A2A 0.3: the whole task.
func oldBody(s runs.Store, base func() string) func(context.Context, runs.Push) ([]byte, string, error) {
	return func(ctx context.Context, p runs.Push) ([]byte, string, error) {
		t, _, err := s.Task(ctx, p.Task)
		if err != nil {
			return nil, "", err
		}
		t, _ = reduce.Reduce(t, base()).(*a2av1.Task)
		b, err := a2av03.RPC.WriteTask(t)
		return b, wire.TypeJSON, err
	}
}
