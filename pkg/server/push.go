package server

import (
	"cmp"
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/push"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/tracing"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
)

// notifier delivers push notifications. A nil *notifier does nothing.
type notifier struct {
	*push.Dispatcher
	out *egress.Dialer
}

// newNotifier returns nil if push notifications are turned off.
func newNotifier(c *Config, h *a2a.Handler, by *auth.Server, guard *egress.Guard, sign *cardsign.Signer, base string, measure *metrics.Pushes, traces *tracing.Pushes) (*notifier, error) {
	if c.NoPush {
		return nil, nil //nolint:nilnil // no push notifications
	}
	out, err := egress.New(egress.Config{Allow: guard.Allow})
	if err != nil {
		return nil, fmt.Errorf("push notifications: %w", err)
	}
	config := push.Config{
		Pushes: c.Store, Outbox: h.Outbox, Client: out.HTTPClient(), Allowed: receives(by), Old: oldBody(c.Store, base),
		Encode:  func(m proto.Message) ([]byte, error) { return wire.Marshal(server.Reduce(m, base)) },
		Version: cmp.Or(c.Version, "dev"), Policy: c.Push, Metrics: measure, Traces: traces, Log: c.Log.Named("push"),
	}
	if sign != nil {
		config.Sign = sign.SignNotification
	}
	return &notifier{push.New(config), out}, nil
}

// firstEvent returns a function that reads the first event of a run.
func firstEvent(s a2a.Store) func(context.Context, a2a.Key) (*teamv1.Event, error) {
	return func(ctx context.Context, run a2a.Key) (*teamv1.Event, error) {
		page, err := s.Events(ctx, run, 0, 1)
		if err != nil || len(page) == 0 {
			return nil, err
		}
		return page[0].Event, nil
	}
}

// oldBody returns the function that encodes the body of notifications for webhooks that were
// registered over A2A 0.3: the whole task.
func oldBody(s a2a.Store, base string) func(context.Context, a2a.Push) ([]byte, string, error) {
	return func(ctx context.Context, p a2a.Push) ([]byte, string, error) {
		t, _, err := s.Task(ctx, p.Task)
		if err != nil {
			return nil, "", err
		}
		t, _ = server.Reduce(t, base).(*a2av1.Task)
		b, err := a2av03.RPC.WriteTask(t)
		return b, wire.TypeJSON, err
	}
}

// serve delivers notifications until ctx ends.
func (t *notifier) serve(ctx context.Context) {
	if t == nil {
		return
	}
	defer t.out.Close()
	t.Serve(ctx)
}

// receives returns a function that reports whether an owner may receive notifications: whether it
// may still call.
func receives(by *auth.Server) func(owner string) bool {
	if by == nil {
		return func(string) bool { return true }
	}
	return by.Holds
}
