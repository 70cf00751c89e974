package sqlstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentteams/team-server/internal/failpoint"
)

const (
	// channel is PostgreSQL's notification channel.
	channel = "team_server"
	// maxPayload is a little less than what PostgreSQL takes.
	maxPayload = 7900
	// reconnect is how long a bell rests after it lost its connection.
	reconnect = 500 * time.Millisecond
	// pollEvery is how often a replica looks for what it was not told.
	pollEvery = time.Second
)

// bell tells other replicas which roots changed, and hears them.
type bell struct {
	listen *pgx.ConnConfig
	send   *pgx.ConnConfig
	self   string // marks our own
	heard  func(roots []string)
	rung   chan struct{}
	work   sync.WaitGroup

	mu    sync.Mutex
	roots map[string]struct{} // to tell; guarded by mu
}

// newBell starts to send and to listen, until ctx ends. Losing a connection costs
// time, never an event: replicas also poll.
func newBell(ctx context.Context, conn *pgx.ConnConfig, cfg Config, heard func([]string)) (*bell, error) {
	b := &bell{listen: conn, send: conn, self: rand.Text()[:8], heard: heard, rung: make(chan struct{}, 1), roots: map[string]struct{}{}}
	if cfg.Listen != "" {
		var err error
		if b.listen, err = pgx.ParseConfig(cfg.Listen); err != nil {
			return nil, fmt.Errorf("the URL for LISTEN is not understood: %w", scrub(err))
		}
	}
	b.work.Go(func() { keep(ctx, b.listen, b.hear) })
	b.work.Go(func() { keep(ctx, b.send, b.tell) })
	return b, nil
}

// ring has other replicas told of a root, soon and together with others.
func (b *bell) ring(root string) {
	b.mu.Lock()
	b.roots[root] = struct{}{}
	b.mu.Unlock()
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// keep holds a connection and uses it, until ctx ends.
func keep(ctx context.Context, to *pgx.ConnConfig, use func(context.Context, *pgx.Conn) error) {
	for ctx.Err() == nil {
		conn, err := pgx.ConnectConfig(ctx, to.Copy())
		if err == nil {
			err = use(ctx, conn)
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			_ = conn.Close(closing)
			cancel()
		}
		if err == nil {
			continue
		}
		select {
		case <-time.After(reconnect):
		case <-ctx.Done():
		}
	}
}

// tell sends what was rung, all that came together in as few notifications as
// they fit. Outside of any append: a notification serialises commits.
func (b *bell) tell(ctx context.Context, conn *pgx.Conn) error {
	for {
		select {
		case <-b.rung:
		case <-ctx.Done():
			return nil
		}
		b.mu.Lock()
		roots := b.roots
		b.roots = map[string]struct{}{}
		b.mu.Unlock()
		failpoint.Hit("store.before_notify")
		for _, p := range payloads(b.self, roots) {
			if _, err := conn.Exec(ctx, `SELECT pg_notify($1, $2)`, channel, p); err != nil {
				return err
			}
		}
	}
}

// payloads are the sender and the roots, in texts that are not too long.
func payloads(self string, roots map[string]struct{}) []string {
	var list []string
	text := self
	for root := range roots {
		if len(text)+1+len(root) > maxPayload {
			list = append(list, text)
			text = self
		}
		text += "," + root
	}
	if text != self {
		list = append(list, text)
	}
	return list
}

// hear passes on what other replicas tell. What was told before it listened is
// not known, so it begins with: anything.
func (b *bell) hear(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, `LISTEN `+channel); err != nil {
		return err
	}
	b.heard(nil)
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if roots := strings.Split(n.Payload, ","); roots[0] != b.self && len(roots) > 1 {
			b.heard(roots[1:])
		}
	}
}
