package sqlstore

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
	heard  func(hint)
	rung   chan struct{}
	work   sync.WaitGroup

	mu  sync.Mutex
	due map[change]struct{} // changes to send; guarded by mu
}

// change belongs to a root or a topic, and may concern an audience.
type change struct{ root, audience string }

// hint describes a change in another replica.
type hint struct {
	roots []string            // nil means any
	tags  map[string]struct{} // of the audiences; nil means any
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
// begins with it: replicas of older versions read these entries as roots without
// readers.
const forTag = "~for/"

// tag is the short form of an audience in a notification: owners may be long or contain
// commas.
func tag(audience string) string {
	sum := sha256.Sum256([]byte(audience))
	return forTag + hex.EncodeToString(sum[:8])
}

// newBell starts to send and to listen, until ctx ends. Losing a connection costs
// time, never an event: replicas also poll.
func newBell(ctx context.Context, conn *pgx.ConnConfig, cfg Config, heard func(hint)) (*bell, error) {
	b := &bell{listen: conn, send: conn, self: rand.Text()[:8], heard: heard, rung: make(chan struct{}, 1), due: map[change]struct{}{}}
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
		due := b.due
		b.due = map[change]struct{}{}
		b.mu.Unlock()
		failpoint.Hit("store.before_notify")
		for _, p := range payloads(b.self, due) {
			if _, err := conn.Exec(ctx, `SELECT pg_notify($1, $2)`, channel, p); err != nil {
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

// hintOf parses the part of a notification after the sender. A notification without
// tags is of an older version and concerns everybody.
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

// hear passes on what other replicas tell. What was told before it listened is
// not known, so it begins with: anything.
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
