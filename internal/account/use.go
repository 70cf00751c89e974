package account

import (
	"cmp"
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Defaults of limits that are not set.
const (
	DefaultQueued      = 10_000
	DefaultUpload      = 32 << 20  // of an account, in bytes
	DefaultTotalUpload = 256 << 20 // of all accounts together, in bytes
)

// Counts counts what the tasks of accounts use. Stores implement it.
type Counts interface {
	// Queued returns how many runs of an account are due and not driven. It counts at most most.
	Queued(ctx context.Context, account string, most int) (int, error)
	// StoredBytes returns the size of the events of the stored tasks of an account.
	StoredBytes(ctx context.Context, account string) (int64, error)
}

// countFor and bytesFor are how long a count of the store is used; a count that refuses is used for a
// tenth of that. In between, what this process adds is counted here.
const (
	countFor = time.Second
	bytesFor = 10 * time.Second
)

// If all that a count has left is used up, the store is asked again, but not before countPause and ten
// times as long as it took the last time have passed. Tasks that have to wait longer than longestPause
// for that are refused.
const (
	countPause   = 50 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// bytesOfTask is what a new task is counted as until the store is asked again: the largest message.
const bytesOfTask = 4 << 20

// use is what an account uses of this process. It is safe for concurrent use.
type use struct {
	mu      sync.Mutex
	queued  count         // guarded by mu
	stored  count         // guarded by mu
	rate    *rate.Limiter // nil without a limit; guarded by mu
	refusal *agent.Error  // what a request beyond rate gets; guarded by mu
	uploads int64         // bytes; guarded by mu
}

// count is a count of the store.
type count struct {
	asking chan struct{} // semaphore: held by the one that asks the store; not guarded

	at    time.Time     // when the store was asked last; zero if never
	took  time.Duration // how long that took
	n     int64
	added int64 // by this process since then
}

// admits counts more if the count is below a limit, and reports whether it is. ok is false if the store
// has to be asked.
func (c *count) admits(limit, more int64, now time.Time, keep time.Duration) (admitted, ok bool) {
	age := now.Sub(c.at)
	switch {
	case c.at.IsZero() || age < 0 || age >= keep:
		return false, false
	case c.n >= limit:
		return false, age < keep/10
	case c.added < limit-c.n:
		c.added += more
		return true, true
	}
	return false, false
}

// pause returns how long the store must not be asked yet, because it was asked shortly before. A count
// that is too old to be used was not.
func (c *count) pause(now time.Time) time.Duration {
	if c.at.IsZero() || now.Before(c.at) {
		return 0
	}
	return c.at.Add(max(countPause, 10*c.took)).Sub(now)
}

// useOf returns what an account uses.
func (a *Accounts) useOf(account string) *use {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.uses[account]
	if u == nil {
		u = &use{queued: count{asking: make(chan struct{}, 1)}, stored: count{asking: make(chan struct{}, 1)}}
		a.uses[account] = u
	}
	return u
}

// limitsOf returns the limits that are set for an account, and those for every account. Both may be nil.
func (a *Accounts) limitsOf(account string) (own, every *teamv1.AccountLimits) {
	every = a.c.Every
	if l, ok := a.c.File[account]; ok {
		return l, every
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stored[account].Limits, every
}

// pick returns the first value that is set, and otherwise fallback.
func pick[T any](own, every *teamv1.AccountLimits, of func(*teamv1.AccountLimits) *T, fallback T) T {
	for _, l := range []*teamv1.AccountLimits{own, every} {
		if l == nil {
			continue
		}
		if v := of(l); v != nil {
			return *v
		}
	}
	return fallback
}

// Weight implements a2a.Shares.
func (a *Accounts) Weight(account string) int {
	own, every := a.limitsOf(account)
	return int(pick(own, every, func(l *teamv1.AccountLimits) *int32 { return l.Weight }, 1))
}

// MaxRunning implements a2a.Shares.
func (a *Accounts) MaxRunning(account string) int {
	own, every := a.limitsOf(account)
	return int(pick(own, every, func(l *teamv1.AccountLimits) *int32 { return l.MaxRunning }, 0))
}

// LimitsRunning implements a2a.Shares.
func (a *Accounts) LimitsRunning() bool {
	if a.c.Every.GetMaxRunning() > 0 {
		return true
	}
	for _, l := range a.c.File {
		if l.GetMaxRunning() > 0 {
			return true
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.stored {
		if s.Limits.GetMaxRunning() > 0 {
			return true
		}
	}
	return false
}

// MaxCollaborations returns how many collaborations of an account may be under way; 0 means no limit.
func (a *Accounts) MaxCollaborations(account string) int {
	own, every := a.limitsOf(account)
	return int(pick(own, every, func(l *teamv1.AccountLimits) *int32 { return l.MaxCollaborations }, 0))
}

// limitError returns the error for a limit that an account has reached.
func limitError(account, limit string, value int64, after time.Duration, what, instead string) *agent.Error {
	n := strconv.FormatInt(value, 10)
	e := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources, "account %q %s; its %s is %s; %s", account, what, limit, n, instead)
	e.Retry, e.RetryAfter = true, after
	return e.With(agent.DetailLimit, limit).With(agent.DetailValue, n).With(agent.DetailSetBy, agent.SetByAccount).With(DetailAccount, account)
}

// admitTask returns INSUFFICIENT_RESOURCES if an account has too many tasks that wait for a slot, or
// too many bytes stored. Other errors are the store's.
func (a *Accounts) admitTask(ctx context.Context, account string) error {
	if a.c.Counts == nil {
		return nil
	}
	own, every := a.limitsOf(account)
	queued := int64(pick(own, every, func(l *teamv1.AccountLimits) *int32 { return l.MaxQueued }, DefaultQueued))
	u := a.useOf(account)
	admitted, err := a.below(ctx, u, &u.queued, queued, 1, countFor, func(ctx context.Context) (int64, error) {
		n, err := a.c.Counts.Queued(ctx, account, int(queued))
		return int64(n), err
	})
	if err != nil {
		return err
	}
	if !admitted {
		return limitError(account, "max_queued", queued, time.Second, "has too many tasks that wait to be run", "try again when some of them have begun")
	}
	stored := pick(own, every, func(l *teamv1.AccountLimits) *int64 { return l.MaxStoredBytes }, math.MaxInt64)
	if stored == math.MaxInt64 {
		return nil
	}
	admitted, err = a.below(ctx, u, &u.stored, stored, bytesOfTask, bytesFor, func(ctx context.Context) (int64, error) { return a.c.Counts.StoredBytes(ctx, account) })
	if err != nil || admitted {
		return err
	}
	return limitError(account, "max_stored_bytes", stored, time.Minute, "has stored too much", "try again when older tasks have been deleted after the time of server.retention")
}

// below reports whether more may be added to a count of the store, and counts it if so. The store is
// asked only if what is known does not tell, by one caller at a time; the others use its answer.
func (a *Accounts) below(ctx context.Context, u *use, c *count, limit, more int64, keep time.Duration, ask func(context.Context) (int64, error)) (bool, error) {
	u.mu.Lock()
	admitted, ok := c.admits(limit, more, time.Now(), keep)
	known := c.at
	u.mu.Unlock()
	if ok {
		return admitted, nil
	}
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	u.mu.Lock()
	admitted, ok = c.admits(limit, more, time.Now(), keep)
	ok = ok || c.at != known // the store was asked while this call waited
	pause := c.pause(time.Now())
	u.mu.Unlock()
	if ok || pause > longestPause {
		return admitted, nil
	}
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	began := time.Now()
	n, err := ask(ctx)
	if err != nil {
		return false, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	c.at, c.n, c.added = time.Now(), n, 0
	c.took = c.at.Sub(began)
	admitted, _ = c.admits(limit, more, c.at, keep)
	return admitted, nil
}

// Request counts a request of an account. The error is INSUFFICIENT_RESOURCES with the time after which
// one is allowed, if the account has made too many within a short time. It is the same one for all
// requests until the limits change.
func (a *Accounts) Request(account string) error {
	own, every := a.limitsOf(account)
	l := own
	if l.GetRequestsPerSecond() <= 0 { // the burst belongs to the rate
		l = every
	}
	perSecond := l.GetRequestsPerSecond()
	if perSecond <= 0 {
		return nil
	}
	burst := int(pick(l, nil, func(l *teamv1.AccountLimits) *int32 { return l.Burst }, int32(min(math.Ceil(2*perSecond), math.MaxInt32))))
	u := a.useOf(account)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.rate == nil || u.rate.Burst() != burst || u.rate.Limit() != rate.Limit(perSecond) {
		u.rate, u.refusal = rate.NewLimiter(rate.Limit(perSecond), burst), tooManyRequests(account, perSecond, burst)
	}
	if u.rate.Allow() {
		return nil
	}
	return u.refusal
}

// tooManyRequests returns the error for an account that makes more requests than it may.
func tooManyRequests(account string, perSecond float64, burst int) *agent.Error {
	after := min(1/perSecond, 24*time.Hour.Seconds())
	e := limitError(account, "requests_per_second", 0, max(time.Duration(after*float64(time.Second)), time.Millisecond), "makes too many requests", "try again later")
	value := strconv.FormatFloat(perSecond, 'g', -1, 64)
	e.Message = "account " + strconv.Quote(account) + " makes too many requests; its requests_per_second is " + value + ", and its burst is " + strconv.Itoa(burst) + "; try again later"
	return e.With(agent.DetailValue, value)
}

// Upload reserves n bytes of a request body that is being received. The caller must return them with
// Uploaded, unless the error is not nil.
func (a *Accounts) Upload(account string, n int64) error {
	own, every := a.limitsOf(account)
	limit := pick(own, every, func(l *teamv1.AccountLimits) *int64 { return l.MaxUploadBytes }, DefaultUpload)
	total := cmp.Or(a.c.TotalUpload, DefaultTotalUpload)
	if all := a.uploads.Add(n); all > total {
		a.uploads.Add(-n)
		e := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
			"the server is receiving too many bytes of request bodies; its max_upload_bytes is %d; try again later", total)
		e.Retry, e.RetryAfter = true, time.Second
		return e.With(agent.DetailLimit, "max_upload_bytes").With(agent.DetailValue, strconv.FormatInt(total, 10))
	}
	u := a.useOf(account)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.uploads+n > limit {
		a.uploads.Add(-n)
		return limitError(account, "max_upload_bytes", limit, time.Second, "is sending too many bytes of request bodies at the same time", "try again when other requests are complete")
	}
	u.uploads += n
	return nil
}

// Uploaded returns bytes that Upload has reserved.
func (a *Accounts) Uploaded(account string, n int64) {
	a.uploads.Add(-n)
	u := a.useOf(account)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.uploads -= n
}
