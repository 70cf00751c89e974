package account

import (
	"cmp"
	"context"
	"math"
	"strconv"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/pkg/agent"
)

// Replicas that share a store limit the requests of an account together. Each reports the requests that it has
// admitted to a bucket in the store, at most every sharePause, and reads how many are left. In between it admits
// requests without asking, so together they may admit more than the bucket holds. The bucket is then negative, and
// all replicas refuse until it has recovered. No request waits for the store.
const (
	// sharePause is the shortest time between two reports of a replica, and reportEvery the longest one
	// for an account that makes requests.
	sharePause  = 250 * time.Millisecond
	reportEvery = time.Second
	// shareTime bounds a report. If it fails, the replica applies the limits alone, and tries again after
	// reportEvery.
	shareTime = 2 * time.Second
	// shareLife is how long what the store had left is used.
	shareLife = 5 * time.Second
)

// Requests are requests that a replica has admitted, for a bucket in the store that all replicas share.
type Requests struct {
	Owner string // an account, or account/principal
	// PerSecond is the rate at which the bucket fills, and Capacity how many requests it has when it is
	// full. Both are above 0.
	PerSecond, Capacity float64
	// Made is the number of requests, which the bucket loses even if it has less.
	Made int
}

// Apply removes the requests from a bucket. now is the time in Unix microseconds. full and after are the times, in
// Unix microseconds, at which the bucket is full before and afterwards; a full of 0 means never used. left is what
// the bucket holds now; it is negative if more was removed than it held.
func (r Requests) Apply(full, now int64) (after int64, left float64) {
	after = min(max(full, now)+int64(math.Ceil(float64(r.Made)/r.PerSecond*1e6)), now+maxDebt.Microseconds())
	return after, r.Capacity - float64(after-now)*r.PerSecond/1e6
}

// maxDebt is the longest time after which a bucket is full.
const maxDebt = 100 * 365 * 24 * time.Hour

// rated are limits with a rate.
type rated interface {
	GetRequestsPerSecond() float64
	GetBurst() int32
}

// bucket limits the requests of an account or a principal. The zero value has no limit. It is not safe
// for concurrent use.
type bucket struct {
	alone   *rate.Limiter // of this process
	refusal *agent.Error  // what a request beyond the limit gets

	// The rest counts the requests to all replicas.
	left   float64   // as the store said, less those admitted since
	made   int       // admitted since the last report
	read   time.Time // when left was read; zero if it is not known
	marked bool      // the next report includes it
}

// fills returns how long an empty bucket takes to fill.
func (b *bucket) fills() time.Duration {
	if b.alone == nil {
		return 0
	}
	return time.Duration(min(b.capacity()/float64(b.alone.Limit()), maxDebt.Seconds()) * float64(time.Second))
}

// capacity is what the bucket in the store has when it is full. It exceeds the burst, so that a single
// replica, which knows what is left only as of its last report, admits as many as it would alone.
func (b *bucket) capacity() float64 {
	return float64(b.alone.Burst()) + float64(b.alone.Limit())*reportEvery.Seconds()
}

// allows counts a request if there may be one more. report says that the store should be asked.
func (b *bucket) allows(now time.Time, shared bool) (allowed, report bool) {
	if !shared {
		return b.alone.AllowN(now, 1), false
	}
	age := now.Sub(b.read)
	report = !b.marked && (age >= reportEvery || b.left < b.capacity()/2)
	if age < shareLife && b.left < 1 || !b.alone.AllowN(now, 1) {
		return false, report
	}
	b.left--
	b.made++
	return true, report
}

// Request counts a request of an owner. The error is INSUFFICIENT_RESOURCES with the time after which one
// is allowed, if the owner or its account has made too many within a short time. It is the same one for
// all requests until the limits change.
func (a *Accounts) Request(owner string) error {
	account := identity.AccountOf(owner)
	own, every := a.limitsOf(account)
	if err := a.request(owner, own.GetPerPrincipal(), every.GetPerPrincipal()); err != nil {
		return err
	}
	return a.request(account, own, every)
}

// request counts a request of an account or an owner. The burst belongs to its rate, so both are those of
// own, or those of every.
func (a *Accounts) request(name string, own, every rated) error {
	l := own // either may be a nil message, which has no limits
	if l.GetRequestsPerSecond() <= 0 {
		l = every
	}
	perSecond := l.GetRequestsPerSecond()
	if perSecond <= 0 {
		return nil
	}
	burst := int(cmp.Or(l.GetBurst(), int32(min(math.Ceil(2*perSecond), math.MaxInt32))))
	u := a.useOf(name)
	defer u.mu.Unlock()
	b := &u.rate
	if b.alone == nil || b.alone.Burst() != burst || b.alone.Limit() != rate.Limit(perSecond) {
		*b = bucket{alone: rate.NewLimiter(rate.Limit(perSecond), burst), refusal: tooManyRequests(name, perSecond, burst), marked: b.marked}
	}
	allowed, report := b.allows(time.Now(), a.c.Shared)
	if report {
		b.marked = true
		a.mark(name)
	}
	if allowed {
		return nil
	}
	return b.refusal
}

// tooManyRequests returns the error for an account or an owner that makes more requests than it may.
func tooManyRequests(name string, perSecond float64, burst int) *agent.Error {
	after := min(1/perSecond, 24*time.Hour.Seconds())
	e := limitError(name, "requests_per_second", strconv.FormatFloat(perSecond, 'g', -1, 64), max(time.Duration(after*float64(time.Second)), time.Millisecond),
		"makes too many requests", "")
	e.Message += "its burst is " + strconv.Itoa(burst) + "; try again later"
	return e
}

// mark adds a bucket to the next report.
func (a *Accounts) mark(name string) {
	a.marks.Lock()
	a.marked = append(a.marked, name)
	a.marks.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// share reports requests until ctx ends.
func (a *Accounts) share(ctx context.Context) {
	failing := false
	for {
		select {
		case <-a.wake:
		case <-ctx.Done():
			return
		}
		err := a.report(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			a.c.Log.Warn("the requests of accounts cannot be counted together with those to other servers; this server limits them alone", zap.Error(err))
		}
		failing = err != nil
		pause := sharePause
		if failing {
			pause = reportEvery
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// report tells the store of the requests that this replica has admitted, and reads what is left. A single
// replica counts alone.
func (a *Accounts) report(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shareTime)
	defer cancel()
	a.marks.Lock()
	names := a.marked
	a.marked = nil
	a.marks.Unlock()
	uses, list := make([]*use, len(names)), make([]Requests, len(names))
	for i, name := range names {
		u := a.useOf(name)
		uses[i] = u
		list[i] = Requests{Owner: name, PerSecond: float64(u.rate.alone.Limit()), Capacity: u.rate.capacity(), Made: u.rate.made}
		u.mu.Unlock()
	}
	servers, err := a.c.Counts.Servers(ctx)
	var left []float64
	if err == nil && servers > 1 {
		left, err = a.c.Ledger.CountRequests(ctx, list)
	}
	now := time.Now()
	for i, u := range uses {
		u.mu.Lock()
		b := &u.rate
		b.marked = false
		switch {
		case err != nil:
			b.read, b.made = time.Time{}, min(b.made, int(b.capacity()))
		case servers <= 1:
			b.read, b.left, b.made = now, b.capacity(), 0
		default:
			b.made = max(b.made-list[i].Made, 0)
			b.read, b.left = now, left[i]-float64(b.made)
		}
		u.mu.Unlock()
	}
	return err
}
