package db

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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
	heard  func(hint)      // called with changes of other replicas; set by start
	ctx    context.Context //nolint:containedctx // of the database
	rung   chan struct{}   // holds one signal: due is not empty
	work   sync.WaitGroup

	mu  sync.Mutex
	due map[change]struct{} // changes to send; guarded by mu
}

// change names the root or topic that has changed, and the audience whom that may concern.
type change struct{ root, audience string }

// hint describes changes by another replica.
type hint struct {
	roots []string            // nil means any root
	tags  map[string]struct{} // tags of the audiences; nil means any audience
}

// concerns reports whether a hint covers an audience.
func (h hint) concerns(audience string) bool {
	if h.tags == nil {
		return true
	}
	_, is := h.tags[tag(audience)]
	return is
}

// forTag is the prefix of entries in a notification that name an audience. No root
// begins with it.
const forTag = "~for/"

// tag is the short form of an audience in a notification: owners may be long or contain
// commas.
func tag(audience string) string {
	sum := sha256.Sum256([]byte(audience))
	return forTag + hex.EncodeToString(sum[:8])
}

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
func (b *bell) start(heard func(hint)) {
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

// payloads returns the notifications for changes: each holds the sender, roots and the
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

// hintOf parses the part of a notification after the sender. Every
// reader acts on one without tags.
func hintOf(entries []string) hint {
	h := hint{roots: []string{}}
	for _, e := range entries {
		if !strings.HasPrefix(e, forTag) {
			h.roots = append(h.roots, e)
			continue
		}
		if h.tags == nil {
			h.tags = map[string]struct{}{}
		}
		h.tags[e] = struct{}{}
	}
	return h
}

// hear receives changes of other replicas. It begins with a hint about everything, because earlier
// notifications were missed.
func (b *bell) hear(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, `LISTEN `+channel); err != nil {
		return err
	}
	b.heard(hint{})
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if entries := strings.Split(n.Payload, ","); entries[0] != b.self && len(entries) > 1 {
			b.heard(hintOf(entries[1:]))
		}
	}
}
