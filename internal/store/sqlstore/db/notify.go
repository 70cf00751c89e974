package db

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
	// channel is the name of the notification channel in PostgreSQL.
	channel = "team_server"
	// maxPayload is the maximum length of a notification in bytes, slightly below that of
	// PostgreSQL.
	maxPayload = 7900
	// reconnect is how long a bell waits after it has lost a connection.
	reconnect = 500 * time.Millisecond
)

// bell sends changes to other replicas and receives theirs.
type bell struct {
	listen *pgx.ConnConfig
	send   *pgx.ConnConfig
	self   string          // identifies this sender in notifications
	heard  func(...string) // called with the topics that other replicas have changed, without any if changes were missed; set by start
	ctx    context.Context //nolint:containedctx // of the database
	rung   chan struct{}   // holds one signal: due is not empty
	work   sync.WaitGroup

	mu  sync.Mutex
	due map[change]struct{} // changes to send; guarded by mu
}

// change names the root or topic that has changed, and the audience whom that may concern.
type change struct{ root, audience string }

// newBell returns a bell for the time until ctx ends.
func newBell(ctx context.Context, conn *pgx.ConnConfig, cfg Config) (*bell, error) {
	b := &bell{ctx: ctx, listen: conn, send: conn, self: rand.Text()[:8], rung: make(chan struct{}, 1), due: map[change]struct{}{}}
	if !cfg.Listen.IsZero() {
		var err error
		if b.listen, err = pgx.ParseConfig(cfg.Listen.Reveal()); err != nil {
			return nil, fmt.Errorf("the URL for LISTEN is not understood: %w", scrub(err))
		}
	}
	return b, nil
}

// start begins to send and to listen. Lost notifications delay readers only until the next poll.
func (b *bell) start(heard func(topics ...string)) {
	b.heard = heard
	b.work.Go(func() { keep(b.ctx, b.listen, b.hear) })
	b.work.Go(func() { keep(b.ctx, b.send, b.tell) })
}

// ring queues a change for the other replicas; it is sent soon, together with others.
func (b *bell) ring(c change) {
	b.mu.Lock()
	b.due[c] = struct{}{}
	b.mu.Unlock()
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// notify sends a notification, which is not stored: its commit need not wait for the disk. That is set for the
// transaction alone, because behind a pooler the session may write data next.
const notify = `SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)`

// keep opens a connection and calls use with it, again and again until ctx ends.
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

// tell sends queued changes in as few notifications as possible. It does so outside of the
// transactions of appends, because a notification serializes commits.
func (b *bell) tell(ctx context.Context, conn *pgx.Conn) error {
	for {
		select {
		case <-b.rung:
		case <-ctx.Done():
			return nil
		}
		b.mu.Lock()
		due := b.due
		b.due = map[change]struct{}{}
		b.mu.Unlock()
		failpoint.Hit("store.before_notify")
		for _, p := range payloads(b.self, due) {
			if _, err := conn.Exec(ctx, notify, channel, p); err != nil {
				return err
			}
		}
	}
}

// payloads returns the notifications for changes: each holds the sender and topics, which are roots and the
// tags of all audiences of these roots, and is short enough for PostgreSQL.
func payloads(self string, changes map[change]struct{}) []string {
	var list []string
	text, told := self, map[string]bool{}
	for c := range changes {
		to := tag(c.audience)
		if len(text)+1+len(c.root)+1+len(to) > maxPayload {
			list = append(list, text)
			text, told = self, map[string]bool{}
		}
		if text += "," + c.root; !told[to] {
			text, told[to] = text+","+to, true
		}
	}
	if text != self {
		list = append(list, text)
	}
	return list
}

// hear receives changes of other replicas. It begins as if everything had changed, because earlier
// notifications were missed.
func (b *bell) hear(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, `LISTEN `+channel); err != nil {
		return err
	}
	b.heard()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if entries := strings.Split(n.Payload, ","); entries[0] != b.self && len(entries) > 1 {
			b.heard(entries[1:]...)
		}
	}
}
