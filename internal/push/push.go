// Package push delivers push notifications to webhooks: at least once, and in order for
// each configuration, even if this process crashes. A slow receiver does not delay others.
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
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/tracing"
)

// Config configures a Dispatcher. Pushes, Outbox, Client and Encode are required.
type Config struct {
	// Pushes stores the configurations and says which of them are due.
	Pushes runs.Pushes
	// Outbox returns the notifications that a configuration has not received yet, like
	// the method Outbox of a2a.Handler.
	Outbox func(ctx context.Context, p runs.Push) (*feed.Outbox, error)
	// Client makes the calls. It must not follow redirects. Its dialer decides which
	// addresses may be called.
	Client *http.Client
	// Encode encodes the body of a notification.
	Encode func(proto.Message) ([]byte, error)
	// Old returns the body for a configuration in an older version of the protocol: the
	// current task. It may be nil if there are no such configurations.
	Old func(ctx context.Context, p runs.Push) (body []byte, mediaType string, err error)
	// Sign returns the signatures of a payload for the receiver with a URL, each as a detached JWS. The
	// payload is the ID of the notification, the time and the body, with dots between them. If Sign is
	// nil or returns none, notifications are not signed.
	Sign func(payload []byte, url string) ([]string, error)
	// Allowed reports whether an owner may still receive notifications. It is called before
	// each call. If Allowed is nil, every owner may.
	Allowed func(ctx context.Context, owner string) (bool, error)
	// Version is the version of the program, for the User-Agent header.
	Version string
	// Policy configures retries and timeouts.
	Policy Policy
	// Limits limits concurrent work.
	Limits Limits
	// Rand returns a random number from 0 to n-1, for jitter; the default is rand.Int64N.
	Rand func(n int64) int64
	// Metrics measures deliveries; nil measures nothing.
	Metrics *metrics.Pushes
	// Traces makes spans of deliveries; nil makes none.
	Traces *tracing.Pushes
	// Log receives failures, without secrets. If Log is nil, nothing is logged.
	Log *zap.Logger
}

// Limits limits what a Dispatcher does concurrently. Zero values stand for the defaults.
type Limits struct {
	// PerHost is the maximum number of calls to one host and port; the default is 8.
	PerHost int
	// PerAccount is the maximum number of calls for one account; the default is 32.
	PerAccount int
	// Total is the maximum number of calls; the default is 256.
	Total int
	// Sessions is the maximum number of configurations in progress; the default is 1,024.
	// One account may have a quarter of them, one host a sixteenth.
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

// Dispatcher delivers notifications to registered webhooks. It is safe for concurrent use.
type Dispatcher struct {
	Config
	slots   slots
	freed   chan struct{} // holds a signal when a session has ended
	refused time.Time     // when a failed claim was last logged; zero if claims work. Used by Serve only

	mu       sync.Mutex
	sessions map[string]int       // number of sessions by host, by account, and in total under ""; guarded by mu
	unread   map[configID]int     // consecutive failures to read the outbox; guarded by mu
	logged   map[string]time.Time // when a failure or the recovery of a host was last logged; guarded by mu
}

// configID identifies a configuration.
type configID struct {
	task runs.Key
	id   string
}

// maxUnread is the maximum size of Dispatcher.unread, and of Dispatcher.logged. When it is reached, all counts
// restart at 0.
const maxUnread = 10_000

// New returns a Dispatcher. It does nothing until Serve is called.
func New(c Config) *Dispatcher {
	c.Policy, c.Limits = c.Policy.withDefaults(), c.Limits.withDefaults()
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Rand == nil {
		c.Rand = rand.Int64N
	}
	return &Dispatcher{Config: c, slots: newSlots(c.Limits), freed: make(chan struct{}, 1), sessions: map[string]int{}, unread: map[configID]int{}, logged: map[string]time.Time{}}
}

// claimBatch is the maximum number of configurations that are claimed at once.
const claimBatch = 64

// claimRetry is the pause after a failed claim.
const claimRetry = time.Second

// logEvery is the minimum interval between log lines about failed claims, and about failures of one host.
const logEvery = 5 * time.Minute

// Serve delivers notifications until ctx ends. Then it releases its claims, so that another
// process continues at once. It may be called once.
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

// claim starts sessions for configurations that are due. If bounded is true, Serve should
// call claim again after wait; otherwise it should wait for a signal.
func (d *Dispatcher) claim(ctx context.Context, wg *sync.WaitGroup) (wait time.Duration, bounded bool) {
	room := min(d.Limits.Sessions-d.count(""), claimBatch)
	if room <= 0 || ctx.Err() != nil {
		return 0, false // freed signals the end of a session
	}
	claims, next, err := d.Pushes.ClaimPushes(ctx, room, d.Policy.Lease)
	if err != nil {
		if ctx.Err() == nil && time.Since(d.refused) >= logEvery {
			d.refused = time.Now()
			d.Log.Warn("cannot claim push configurations", zap.Error(err))
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
			s.postpone(ctx)
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

// failedRead counts a failure to read an outbox and returns the number of consecutive
// failures.
func (d *Dispatcher) failedRead(of configID) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.unread) >= maxUnread {
		clear(d.unread)
	}
	d.unread[of]++
	return d.unread[of]
}

// resetRead sets the number of consecutive failures to read an outbox to 0.
func (d *Dispatcher) resetRead(of configID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.unread, of)
}

// rarely reports whether something that happens to a host is to be logged: at most once in logEvery.
func (d *Dispatcher) rarely(what string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.logged[what]) < logEvery {
		return false
	}
	if len(d.logged) >= maxUnread {
		clear(d.logged)
	}
	d.logged[what] = time.Now()
	return true
}

// forget makes the next call of rarely return true.
func (d *Dispatcher) forget(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.logged, what)
}

func (d *Dispatcher) count(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[name]
}

// enter counts a session and reports whether its host and its account may have another one.
func (d *Dispatcher) enter(s *session) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	fits := d.sessions[s.host] < max(d.Limits.Sessions/16, 1) && d.sessions[s.account] < max(d.Limits.Sessions/4, 1)
	for _, name := range s.names() {
		d.sessions[name]++
	}
	return fits
}

// leave removes a session from the counts and signals freed.
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

// settle records a step of a configuration, even while the dispatcher stops. It reports
// whether the step was recorded: not if the claim was lost or the store failed.
func (d *Dispatcher) settle(ctx context.Context, c runs.PushClaim, s runs.PushStep) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	err := d.Pushes.SettlePush(ctx, c, s)
	if err != nil && !errors.Is(err, runs.ErrPushLost) {
		d.Log.Warn("cannot record a delivery; the notification may be sent again",
			zap.String("task", c.Task.ID), zap.String("config", c.Config.GetId()), zap.Error(err))
	}
	return err == nil
}

// settleTime is the timeout of settle.
const settleTime = 5 * time.Second
