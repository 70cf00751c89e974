// Package push tells the receivers of push notifications what happens to tasks:
// at least once, in order for each configuration, whatever happens to this
// process, and without anybody else waiting for them.
package push

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Config sets up a Dispatcher. Pushes, Outbox, Client and Encode are required.
type Config struct {
	// Pushes keep the configurations and say which are due.
	Pushes a2a.Pushes
	// Outbox returns what a configuration is still to be told; a handler's does.
	Outbox func(ctx context.Context, p a2a.Push) (*feed.Outbox, error)
	// Client makes the calls; it must follow no redirects. Its dialer decides which
	// addresses may be called.
	Client *http.Client
	// Encode makes the body of a notification.
	Encode func(proto.Message) ([]byte, error)
	// Old makes the body for a configuration in another version of the protocol,
	// which shows the task as it is now; nil: there are none.
	Old func(ctx context.Context, p a2a.Push) (body []byte, mediaType string, err error)
	// Allowed reports whether an owner may still be told of its tasks: asked before
	// each call. Nil: always.
	Allowed func(owner string) bool
	// Version of the program, for the receivers.
	Version string
	// Policy says how receivers are treated.
	Policy Policy
	// Limits bound what is done at the same time.
	Limits Limits
	// Rand returns a number from 0 up to below n, for jitter; nil is a random one.
	Rand func(n int64) int64
	// Log gets what goes wrong, without secrets; nil is none.
	Log *zap.Logger
}

// Limits bound what a Dispatcher does at the same time.
type Limits struct {
	// PerHost is how many calls one host and port gets at the same time; 0 is 8.
	PerHost int
	// PerAccount is how many are made for one account; 0 is 32.
	PerAccount int
	// Total is how many are made in all; 0 is 256.
	Total int
	// Sessions is how many configurations are looked after; 0 is 1,024. A quarter of
	// them may be one account's, a sixteenth one host's.
	Sessions int
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		field *int
		value int
	}{{&l.PerHost, 8}, {&l.PerAccount, 32}, {&l.Total, 256}, {&l.Sessions, 1024}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return l
}

// Dispatcher tells receivers. Safe for concurrent use.
type Dispatcher struct {
	Config
	slots   slots
	freed   chan struct{} // holds one signal: a slot for another session is free
	refused time.Time     // when failing claims were logged last; zero: claims work. Used by Serve only

	mu       sync.Mutex
	sessions map[string]int   // by host, by account, and in all under an empty name; guarded by mu
	unread   map[configID]int // how often in a row what is to be told could not be read; guarded by mu
}

// configID names a configuration.
type configID struct {
	task a2a.Key
	id   string
}

// maxUnread bounds what is known of failures.
const maxUnread = 10_000

// New returns a dispatcher that does nothing until Serve.
func New(c Config) *Dispatcher {
	c.Policy, c.Limits = c.Policy.withDefaults(), c.Limits.withDefaults()
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Rand == nil {
		c.Rand = rand.Int64N
	}
	return &Dispatcher{Config: c, slots: newSlots(c.Limits), freed: make(chan struct{}, 1), sessions: map[string]int{}, unread: map[configID]int{}}
}

// claimed is how many configurations are claimed at once.
const claimed = 64

// claimRetry is how long the dispatcher waits after the store refused a claim.
const claimRetry = time.Second

// logEvery is the interval at which repeated claim failures are logged.
const logEvery = 5 * time.Minute

// Serve tells receivers until ctx ends, then gives up what it holds, so that
// another process goes on at once. Called once.
func (d *Dispatcher) Serve(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if wait, bounded := d.claim(ctx, &wg); bounded {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-d.Pushes.PushWake():
		case <-d.freed:
		case <-timer.C:
		}
	}
}

// claim begins sessions of what is due. It returns how long nothing more can be
// due, where that is known.
func (d *Dispatcher) claim(ctx context.Context, wg *sync.WaitGroup) (wait time.Duration, bounded bool) {
	room := min(d.Limits.Sessions-d.count(""), claimed)
	if room <= 0 || ctx.Err() != nil {
		return 0, false // the end of a session signals
	}
	claims, next, err := d.Pushes.ClaimPushes(ctx, room, d.Policy.Lease)
	if err != nil {
		if ctx.Err() == nil && time.Since(d.refused) >= logEvery {
			d.refused = time.Now()
			d.Log.Warn("push configurations cannot be claimed", zap.Error(err))
		}
		return claimRetry, true
	}
	d.refused = time.Time{}
	for _, c := range claims {
		s := d.newSession(c)
		fits := d.enter(s)
		wg.Go(func() {
			defer d.leave(s)
			if fits {
				s.run(ctx)
				return
			}
			s.later(ctx)
		})
	}
	switch {
	case len(claims) == room:
		return 0, true
	case next.IsZero():
		return 0, false
	}
	return max(next.Sub(d.Pushes.Now()), 0), true
}

// failedRead counts a failure to read, and returns how many there were in a row.
func (d *Dispatcher) failedRead(of configID) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.unread) >= maxUnread {
		clear(d.unread)
	}
	d.unread[of]++
	return d.unread[of]
}

// read ends the count.
func (d *Dispatcher) read(of configID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.unread, of)
}

func (d *Dispatcher) count(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[name]
}

// enter counts a session. It reports whether its host and its account may have
// one more.
func (d *Dispatcher) enter(s *session) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	fits := d.sessions[s.host] < max(d.Limits.Sessions/16, 1) && d.sessions[s.account] < max(d.Limits.Sessions/4, 1)
	for _, name := range s.names() {
		d.sessions[name]++
	}
	return fits
}

// leave ends the count.
func (d *Dispatcher) leave(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range s.names() {
		if d.sessions[name]--; d.sessions[name] == 0 {
			delete(d.sessions, name)
		}
	}
	select {
	case d.freed <- struct{}{}:
	default:
	}
}

// settle puts a step on record, also while the dispatcher stops. It reports
// whether the claim is still there.
func (d *Dispatcher) settle(ctx context.Context, c a2a.PushClaim, s a2a.PushStep) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	err := d.Pushes.SettlePush(ctx, c, s)
	if err != nil && !errors.Is(err, a2a.ErrPushLost) {
		d.Log.Warn("how far a receiver was told cannot be put on record; it may be told again",
			zap.String("task", c.Task.ID), zap.String("config", c.Config.GetId()), zap.Error(err))
	}
	return err == nil
}

// settleTime bounds what is put on record at the end.
const settleTime = 5 * time.Second
