package account

import (
	"context"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/pkg/agent"
)

// Defaults of limits that are not set.
const (
	defaultQueued = 10_000
	defaultUpload = 32 << 20 // of an account, in bytes
)

// Counts counts what the tasks of accounts use. Stores implement it.
type Counts interface {
	// Queued returns how many runs of an account, or of an owner, are due and not driven. It counts at
	// most most.
	Queued(ctx context.Context, name string, most int) (int, error)
	// StoredBytes returns the size of the events of the stored tasks of an account.
	StoredBytes(ctx context.Context, account string) (int64, error)
	// Servers returns how many replicas share the store now, at least 1.
	Servers(ctx context.Context) (int, error)
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

// use is what an account, or a principal of it, uses of this process. It is safe for concurrent use.
type use struct {
	mu      sync.Mutex
	queued  count     // guarded by mu
	stored  count     // guarded by mu
	rate    bucket    // guarded by mu
	uploads int64     // bytes; guarded by mu
	seen    time.Time // when something was last counted; guarded by mu
}

// idle reports whether a use may be forgotten: nothing is counted that a later one would not read again.
// The caller holds mu.
func (u *use) idle(now time.Time) bool {
	return u.uploads == 0 && now.Sub(u.seen) > max(bytesFor, u.rate.fills()) && !u.rate.marked
}

// count is a count of the store.
type count struct {
	asking chan struct{} // semaphore: held by the one that asks the store; not guarded

	at    time.Time     // when the store was asked last; zero if never
	took  time.Duration // how long that took
	n     int64
	added int64 // by this process since then
	// servers is how many share the store. Each admits its part of what is left, because it does not know
	// what the others add until it asks again.
	servers int64
}

// admits counts more if the count is below a limit, and reports whether it is. ok is false if the store
// has to be asked.
func (c *count) admits(limit, more int64, now time.Time, keep time.Duration) (admitted, ok bool) {
	switch {
	case c.stale(now, keep):
		return false, false
	case c.n >= limit:
		return false, now.Sub(c.at) < keep/10
	case c.added < (limit-c.n+c.servers-1)/c.servers: // rounded up
		c.added += more
		return true, true
	}
	return false, false
}

// stale reports whether a count is too old to be used. One that took long is used for longer, so that the
// store is not asked all the time.
func (c *count) stale(now time.Time, keep time.Duration) bool {
	age := now.Sub(c.at)
	return c.at.IsZero() || age < 0 || age >= max(keep, 10*c.took)
}

// pause returns how long the store must not be asked yet, because it was asked shortly before. A count
// that is stale was not.
func (c *count) pause(now time.Time) time.Duration {
	if c.at.IsZero() || now.Before(c.at) {
		return 0
	}
	return c.at.Add(max(countPause, 10*c.took)).Sub(now)
}

// useOf returns what an account or an owner uses, locked. The caller must unlock it.
func (a *Accounts) useOf(name string) *use {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.uses[name]
	if u == nil {
		u = &use{queued: newCount(), stored: newCount()}
		a.uses[name] = u
	}
	u.mu.Lock()
	u.seen = time.Now()
	return u
}

func newCount() count { return count{asking: make(chan struct{}, 1), servers: 1} }

// forget forgets what has not been used for long, because the number of principals is not bounded.
func (a *Accounts) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(a.uses, func(_ string, u *use) bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.idle(now)
	})
}

// limitsOf returns the limits that are set for an account, and those on the use of the server of each account for which the
// same limit is not set. Both may be nil. Limits on what tasks spend have no effect there.
func (a *Accounts) limitsOf(account string) (own, every *teamv1.AccountLimits) {
	now := a.c.Settings.Load()
	every = now.GetLimits().GetAccount()
	if l, ok := now.GetAccounts()[account]; ok {
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

// eachOf returns the limits of l for each principal, never nil. l may be nil.
func eachOf(l *teamv1.AccountLimits) *teamv1.PrincipalLimits {
	if l.GetPerPrincipal() == nil {
		return &teamv1.PrincipalLimits{}
	}
	return l.GetPerPrincipal()
}

// Weight implements engine.Shares.
func (a *Accounts) Weight(account string) int {
	own, every := a.limitsOf(account)
	return int(pick(own, every, func(l *teamv1.AccountLimits) *int32 { return l.Weight }, 1))
}

// MaxRunning implements engine.Shares.
func (a *Accounts) MaxRunning(account string) int {
	own, every := a.limitsOf(account)
	return int(pick(own, every, func(l *teamv1.AccountLimits) *int32 { return l.MaxRunning }, 0))
}

// MaxRunningEach implements engine.Shares.
func (a *Accounts) MaxRunningEach(account string) int {
	own, every := a.limitsOf(account)
	return int(pick(own, every, func(l *teamv1.AccountLimits) *int32 { return eachOf(l).MaxRunning }, 0))
}

// LimitsRunning implements engine.Shares.
func (a *Accounts) LimitsRunning() bool {
	limits := func(l *teamv1.AccountLimits) bool {
		return l.GetMaxRunning() > 0 || l.GetPerPrincipal().GetMaxRunning() > 0
	}
	now := a.c.Settings.Load()
	if limits(now.GetLimits().GetAccount()) {
		return true
	}
	for _, l := range now.GetAccounts() {
		if limits(l) {
			return true
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.stored {
		if limits(s.Limits) {
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

// limitError returns the error for a limit that an account, or a principal of it, has reached. name is
// an account or an owner.
func limitError(name, limit, value string, after time.Duration, what, instead string) *agent.Error {
	account, principal, each := strings.Cut(name, "/")
	who := "account " + strconv.Quote(account)
	if each {
		who, limit = "principal "+strconv.Quote(principal)+" of "+who, "per_principal."+limit
	}
	e := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources, "%s %s; its %s is %s; %s", who, what, limit, value, instead)
	e.Retry, e.RetryAfter = true, after
	e = e.With(agent.DetailLimit, limit).With(agent.DetailValue, value).With(agent.DetailSetBy, agent.SetByAccount).With(agent.DetailAccount, account)
	if each {
		e = e.With(agent.DetailPrincipal, principal)
	}
	return e
}

// admitTask returns INSUFFICIENT_RESOURCES if an owner or its account has too many tasks that wait for a
// slot, or if its account has too many bytes stored. Other errors are the store's.
func (a *Accounts) admitTask(ctx context.Context, owner string) error {
	if a.c.Counts == nil {
		return nil
	}
	account := identity.AccountOf(owner)
	own, every := a.limitsOf(account)
	each := pick(own, every, func(l *teamv1.AccountLimits) *int32 { return eachOf(l).MaxQueued }, 0)
	if each > 0 {
		if err := a.admitQueued(ctx, owner, int64(each)); err != nil {
			return err
		}
	}
	if err := a.admitQueued(ctx, account, int64(pick(own, every, func(l *teamv1.AccountLimits) *int32 { return l.MaxQueued }, defaultQueued))); err != nil {
		return err
	}
	stored := pick(own, every, func(l *teamv1.AccountLimits) *int64 { return l.MaxStoredBytes }, math.MaxInt64)
	if stored == math.MaxInt64 {
		return nil
	}
	admitted, err := a.below(ctx, account, func(u *use) *count { return &u.stored }, stored, bytesOfTask, bytesFor, func(ctx context.Context) (int64, error) { return a.c.Counts.StoredBytes(ctx, account) })
	if err != nil || admitted {
		return err
	}
	return limitError(account, "max_stored_bytes", strconv.FormatInt(stored, 10), time.Minute, "has stored too much", "try again when older tasks have been deleted after the time of server.retention")
}

// admitQueued returns INSUFFICIENT_RESOURCES if too many tasks of an account or an owner wait for a slot.
func (a *Accounts) admitQueued(ctx context.Context, name string, limit int64) error {
	admitted, err := a.below(ctx, name, func(u *use) *count { return &u.queued }, limit, 1, countFor, func(ctx context.Context) (int64, error) {
		n, err := a.c.Counts.Queued(ctx, name, int(limit))
		return int64(n), err
	})
	if err != nil || admitted {
		return err
	}
	return limitError(name, "max_queued", strconv.FormatInt(limit, 10), time.Second, "has too many tasks that wait to be run", "try again when some of them have begun")
}

// below reports whether more may be added to a count of the store, and counts it if so. name is an account
// or an owner, and of selects its count. The store is asked only if what is known does not tell, by one
// caller at a time; the others use its answer.
func (a *Accounts) below(ctx context.Context, name string, of func(*use) *count, limit, more int64, keep time.Duration, ask func(context.Context) (int64, error)) (bool, error) {
	u := a.useOf(name)
	c := of(u)
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
	ok = ok || c.at != known && !c.stale(time.Now(), keep) // the store was asked while this call waited
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
	servers, err := a.c.Counts.Servers(ctx)
	if err != nil {
		return false, err
	}
	n, err := ask(ctx)
	if err != nil {
		return false, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	c.at, c.n, c.added, c.servers = time.Now(), n, 0, int64(max(servers, 1))
	c.took = c.at.Sub(began)
	admitted, _ = c.admits(limit, more, c.at, keep)
	return admitted, nil
}

// Upload reserves n bytes of a request body of an owner that is being received. The caller must return
// them with Uploaded, unless the error is not nil.
func (a *Accounts) Upload(owner string, n int64) error {
	account := identity.AccountOf(owner)
	own, every := a.limitsOf(account)
	limit := pick(own, every, func(l *teamv1.AccountLimits) *int64 { return l.MaxUploadBytes }, defaultUpload)
	each := pick(own, every, func(l *teamv1.AccountLimits) *int64 { return eachOf(l).MaxUploadBytes }, math.MaxInt64)
	total := a.c.Settings.Load().GetLimits().GetMaxUploadBytes()
	if all := a.uploads.Add(n); all > total {
		a.uploads.Add(-n)
		e := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
			"the server is receiving too many bytes of request bodies; its max_upload_bytes is %d; try again later", total)
		e.Retry, e.RetryAfter = true, time.Second
		return e.With(agent.DetailLimit, "max_upload_bytes").With(agent.DetailValue, strconv.FormatInt(total, 10))
	}
	err := a.upload(owner, n, each)
	if err == nil {
		if err = a.upload(account, n, limit); err != nil {
			_ = a.upload(owner, -n, math.MaxInt64)
		}
	}
	if err != nil {
		a.uploads.Add(-n)
	}
	return err
}

// upload reserves bytes of an account or an owner, or returns them if n is negative.
func (a *Accounts) upload(name string, n, limit int64) error {
	u := a.useOf(name)
	defer u.mu.Unlock()
	if n > 0 && u.uploads+n > limit {
		return limitError(name, "max_upload_bytes", strconv.FormatInt(limit, 10), time.Second, "is sending too many bytes of request bodies at the same time", "try again when other requests are complete")
	}
	u.uploads += n
	return nil
}

// Uploaded returns bytes that Upload has reserved.
func (a *Accounts) Uploaded(owner string, n int64) {
	a.uploads.Add(-n)
	_ = a.upload(owner, -n, math.MaxInt64)
	_ = a.upload(identity.AccountOf(owner), -n, math.MaxInt64)
}
