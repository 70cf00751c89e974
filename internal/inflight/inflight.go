// Package inflight limits how much memory a server uses for what it is working on: requests, answers,
// streams, runs and calls of others. What each of them holds is estimated and reserved from one
// [Budget], of which each account has a share.
package inflight

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// Kind says what memory is held for.
type Kind int

// The kinds. An account that holds nothing of a kind is always granted what it asks for of that kind, so
// that each kind makes progress whatever the others hold.
const (
	// Request is the message of a request, until its call has ended.
	Request Kind = iota
	// Stop is the message of a request that stops work.
	Stop
	// Answer is an answer, until it has been sent.
	Answer
	// Stream is an update of a stream, until it has been sent.
	Stream
	// Feed is what the readers of a task share: its state and its latest updates.
	Feed
	// Run is a run that is driven: its events, and what its agents keep of them.
	Run
	// Record is a large event of a run that is recorded, until the store has it.
	Record
	// Call is a request to a model, a tool or another agent, with its answer.
	Call

	kinds
)

// String returns the kind as the label of a metric.
func (k Kind) String() string {
	return [kinds]string{"request", "stop", "answer", "stream", "feed", "run", "record", "call"}[k]
}

const (
	// headroom is how many bytes an account of weight 1 may hold for each byte that is then free. Alone, it
	// gets two thirds of the budget, the next one two thirds of the rest, and so on.
	headroom = 2
	// floor is the part of the budget that every account may hold, even if nothing is free.
	floor = 8
	// retryAfter is when a caller that was refused should try again.
	retryAfter = time.Second
)

// Budget is memory that accounts share. A nil *Budget has no limit. It is safe for concurrent use.
type Budget struct {
	weight func(account string) int

	mu       sync.Mutex
	size     int64           // guarded by mu
	all      int64           // bytes held by all accounts; guarded by mu
	of       [kinds]int64    // the same, by kind; guarded by mu
	refused  [kinds]int64    // number of refusals; guarded by mu
	accounts map[string]*use // those that hold something or wait; guarded by mu
	waiting  int             // calls of Wait that wait; guarded by mu
	order    int64           // number of calls of Wait, and of holds; guarded by mu
}

// use is what an account holds.
type use struct {
	account string
	held    int64        // bytes
	holds   [kinds]int64 // number of holds
	waiting []*waiter    // in their order
}

// waiter is a call of Wait that waits.
type waiter struct {
	hold    *Hold
	order   int64         // lower ones are first
	granted chan struct{} // closed when it is granted
}

// New returns a budget of size bytes. weight returns the weight of an account relative to others, and may
// be nil; then all accounts are equal. It is called while the budget is locked.
func New(size int64, weight func(account string) int) *Budget {
	return &Budget{size: size, weight: weight, accounts: map[string]*use{}}
}

// Resize sets the size. What is held beyond it is not taken back.
func (b *Budget) Resize(size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size = size
	b.grant()
}

// Reserve reserves n bytes for an account. The error is INSUFFICIENT_RESOURCES if the account may not hold
// so much more now.
func (b *Budget) Reserve(kind Kind, account string, n int64) (*Hold, error) {
	if b == nil {
		return nil, nil //nolint:nilnil // nothing is counted
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.useOf(account)
	if !b.fits(u, kind, n) {
		b.forget(u)
		return nil, b.refuse(kind)
	}
	return b.take(&Hold{b: b, u: u, kind: kind}, n), nil
}

// Take counts n bytes of an account. It is never refused: what the account asks for otherwise is.
func (b *Budget) Take(kind Kind, account string, n int64) *Hold {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.take(&Hold{b: b, u: b.useOf(account), kind: kind}, n)
}

// Wait is like Reserve, but waits for its turn. The error is INSUFFICIENT_RESOURCES if that takes longer than
// patience, or the cause of ctx.
func (b *Budget) Wait(ctx context.Context, kind Kind, account string, n int64, patience time.Duration) (*Hold, error) {
	if b == nil {
		return nil, nil //nolint:nilnil // nothing is counted
	}
	return b.wait(ctx, &Hold{b: b, kind: kind, n: n}, account, 0, patience)
}

// wait waits until a hold is granted its n. order is that of what it waits for, 0 if it is new.
func (b *Budget) wait(ctx context.Context, h *Hold, account string, order int64, patience time.Duration) (*Hold, error) {
	w := b.enqueue(h, account, order)
	if w == nil {
		return h, nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var err error
	select {
	case <-w.granted:
		return h, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(h.u.waiting, w)
	if i < 0 { // granted in the meantime
		return h, nil
	}
	b.leave(h.u, i)
	b.forget(h.u)
	b.grant() // what waited behind it may fit
	if err == nil {
		err = b.refuse(h.kind)
	}
	return nil, err
}

// enqueue grants a hold its n, or returns its place among those that wait.
func (b *Budget) enqueue(h *Hold, account string, order int64) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.useOf(account)
	h.u = u
	next := len(u.waiting) == 0 || u.holds[h.kind] == 0 || h.kind == Request // what waits may wait for long
	if next && b.fits(u, h.kind, h.n) {
		b.take(h, h.n)
		return nil
	}
	b.order++
	w := &waiter{hold: h, order: cmp.Or(order, b.order), granted: make(chan struct{})}
	i, _ := slices.BinarySearchFunc(u.waiting, w.order, func(o *waiter, order int64) int { return cmp.Compare(o.order, order+1) })
	u.waiting = slices.Insert(u.waiting, i, w)
	b.waiting++
	return w
}

// useOf returns what an account holds. The caller must hold mu, and call forget if it holds nothing after all.
func (b *Budget) useOf(account string) *use {
	u := b.accounts[account]
	if u == nil {
		u = &use{account: account}
		b.accounts[account] = u
	}
	return u
}

// forget forgets an account that holds nothing and does not wait. The caller must hold mu.
func (b *Budget) forget(u *use) {
	if u.holds == [kinds]int64{} && len(u.waiting) == 0 {
		delete(b.accounts, u.account)
	}
}

// fits reports whether an account may hold n more bytes. The caller must hold mu.
func (b *Budget) fits(u *use, kind Kind, n int64) bool {
	held, free := u.held+n, b.size-b.all-n
	return u.holds[kind] == 0 || held <= b.size/floor || held <= headroom*free || free > 0 && held/headroom/free < b.weightOf(u)
}

// weightOf returns the weight of an account. The caller must hold mu.
func (b *Budget) weightOf(u *use) int64 {
	if b.weight == nil {
		return 1
	}
	return max(int64(b.weight(u.account)), 1)
}

// take adds n bytes to a hold that has none. The caller must hold mu.
func (b *Budget) take(h *Hold, n int64) *Hold {
	b.order++
	h.n, h.on, h.order = 0, true, b.order
	h.u.holds[h.kind]++
	b.add(h, n)
	return h
}

// add adds n bytes to a hold. The caller must hold mu.
func (b *Budget) add(h *Hold, n int64) {
	h.n += n
	h.u.held += n
	b.of[h.kind] += n
	b.all += n
}

// grant grants what waits and fits, first of the account that holds least for its weight. The caller must hold mu.
func (b *Budget) grant() {
	for b.waiting > 0 {
		var next *use
		for _, u := range b.accounts {
			if len(u.waiting) > 0 && b.first(u) >= 0 && (next == nil || u.held*b.weightOf(next) < next.held*b.weightOf(u)) {
				next = u
			}
		}
		if next == nil {
			return
		}
		i := b.first(next)
		w := next.waiting[i]
		b.leave(next, i)
		b.take(w.hold, w.hold.n)
		close(w.granted)
	}
}

// leave removes a waiter. The caller must hold mu.
func (b *Budget) leave(u *use, i int) {
	u.waiting = slices.Delete(u.waiting, i, i+1)
	b.waiting--
}

// first returns the index of the waiter of an account that is next, -1 if none fits: the first one, or the
// first one of a kind of which the account holds nothing. The caller must hold mu.
func (b *Budget) first(u *use) int {
	if h := u.waiting[0].hold; b.fits(u, h.kind, h.n) {
		return 0
	}
	return slices.IndexFunc(u.waiting, func(w *waiter) bool { return u.holds[w.hold.kind] == 0 })
}

// refuse counts a refusal and returns its error. The caller must hold mu.
func (b *Budget) refuse(kind Kind) error {
	b.refused[kind]++
	e := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
		"the server has no free memory for this account; its limits.max_bytes_in_flight is %d; try again later, or send and read less at the same time", b.size)
	e.Retry, e.RetryAfter = true, retryAfter
	return e.With(agent.DetailLimit, limitName).With(agent.DetailValue, strconv.FormatInt(b.size, 10))
}

// limitName is the name of the limit in errors.
const limitName = "max_bytes_in_flight"

// Use returns the bytes that are held, and how often some were refused, by kind.
func (b *Budget) Use() (held, refused map[string]int64) {
	held, refused = map[string]int64{}, map[string]int64{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range kinds {
		held[k.String()], refused[k.String()] = b.of[k], b.refused[k]
	}
	return held, refused
}

// Hold is memory that is reserved until Release. A nil *Hold holds nothing, and its methods do nothing. It is safe for
// concurrent use.
type Hold struct {
	b     *Budget
	u     *use
	kind  Kind
	n     int64 // guarded by b.mu
	on    bool  // it has been granted and not released; guarded by b.mu
	order int64 // when it was granted; guarded by b.mu
}

// Grow adds n bytes, which may be negative. It never fails: what exists already is counted, so that the
// account is refused more. It does nothing after Release.
func (h *Hold) Grow(n int64) {
	if h == nil || n == 0 {
		return
	}
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	h.grow(n)
}

// More adds n bytes if the account may hold so much more. The error is INSUFFICIENT_RESOURCES.
func (h *Hold) More(n int64) error {
	if h == nil {
		return nil
	}
	b := h.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > 0 && h.on && h.u.holds[h.kind] > 1 && !b.fits(h.u, h.kind, n) {
		return b.refuse(h.kind)
	}
	h.grow(n)
	return nil
}

// Wait waits for memory for something else of the same account, like Budget.Wait. Of several holds, the one that was granted
// first is first.
func (h *Hold) Wait(ctx context.Context, kind Kind, n int64, patience time.Duration) (*Hold, error) {
	h.b.mu.Lock()
	order := h.order
	h.b.mu.Unlock()
	return h.b.wait(ctx, &Hold{b: h.b, kind: kind, n: n}, h.u.account, order, patience)
}

// Size returns how many bytes are held.
func (h *Hold) Size() int64 {
	if h == nil {
		return 0
	}
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	return h.n
}

// Set sets how many bytes are held, like Grow.
func (h *Hold) Set(n int64) {
	if h == nil {
		return
	}
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	h.grow(n - h.n)
}

// grow is Grow. The caller must hold b.mu.
func (h *Hold) grow(n int64) {
	if !h.on {
		return
	}
	if h.b.add(h, n); n < 0 {
		h.b.grant()
	}
}

// Release returns what is held. Further calls do nothing.
func (h *Hold) Release() {
	if h == nil {
		return
	}
	b := h.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if !h.on {
		return
	}
	b.add(h, -h.n)
	h.on = false
	h.u.holds[h.kind]--
	b.forget(h.u)
	b.grant()
}
