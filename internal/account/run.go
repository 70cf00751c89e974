package account

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// maxWait is how long a reservation waits for others to release theirs. Runs may wait for each
	// other, so it must end.
	maxWait = 30 * time.Second
	// askAgain is how often the first reservation that waits asks the store, because others may have
	// released theirs in other processes.
	askAgain = 250 * time.Millisecond
	// share is the part of what an account has left that is given to work on another server, so
	// that it does not stop all other tasks of the account.
	share = 4
)

// RunAccount is the account of a run, for the owner of the run. It implements spending.Account. It is
// safe for concurrent use.
type RunAccount struct {
	a    *Accounts
	o    Opening
	id   Run
	ctx  context.Context // of the drive
	stop context.CancelFunc
	line *line
	work sync.WaitGroup // at most one goroutine writes what was settled

	op     chan struct{} // semaphore: held while the ledger is written
	rows   []Row         // as last written; guarded by op
	unsure bool          // the last booking may be in the ledger or not; guarded by op
	before agent.Cost    // see Row

	mu       sync.Mutex
	settled  []settlement // not written yet; guarded by mu
	writing  bool         // the goroutine runs; guarded by mu
	kept     agent.Cost   // held with Keep; guarded by mu
	syncs    int          // number of calls of Sync; guarded by mu
	adopted  *hold        // held by the owner before, see Open; guarded by mu
	lastLeft agent.Cost   // what was left at the last booking; guarded by mu
}

// settlement is a reservation that has ended.
type settlement struct {
	day            string
	released, used agent.Cost
}

// hold implements spending.AccountHold.
type hold struct {
	r     *RunAccount
	day   string
	c     agent.Cost // as the row counts it
	keep  bool
	syncs int  // of r when it was made
	over  bool // guarded by r.mu
}

// Opening says how an owner opens the account of its run.
type Opening struct {
	Claim runs.Claim
	// Spent and Held are what the run has spent and still holds according to its journal.
	Spent, Held agent.Cost
	// Adopt reports whether the run keeps what the owner before held until its first reservation,
	// which replaces it. Held is not used then. If Adopt is nil, it does not.
	Adopt func(ctx context.Context) (bool, error)
	// Commit returns when everything that was appended to the journal is durable.
	Commit func(ctx context.Context) error
	// Fail stops the drive because the ledger cannot be written, and returns the error for the
	// work that meets it.
	Fail func(error) error
}

// Open opens the account of a claimed run. It returns nil if the account has no limits. It takes over
// from earlier owners of the run: what they held and did not settle becomes what the journal says.
// ctx is that of the drive; Close must be called. The error is agent.ErrFenced or the store's.
func (a *Accounts) Open(ctx context.Context, o Opening) (*RunAccount, error) {
	account := identity.AccountOf(o.Claim.Owner)
	l, ok, err := a.limits(ctx, account)
	if err != nil || !ok {
		return nil, err
	}
	r := &RunAccount{
		a: a, o: o, id: Run{account, o.Claim.Root, o.Claim.Epoch}, line: a.lineOf(account), op: make(chan struct{}, 1),
		lastLeft: l.PerDay.Min(l.InFlight),
	}
	if r.rows, err = a.c.Ledger.OpenUse(ctx, r.id, l.Day(a.c.Clock()), saturated(o.Spent)); err != nil {
		return nil, err
	}
	adopt := false
	if o.Adopt != nil {
		if adopt, err = o.Adopt(ctx); err != nil {
			return nil, err
		}
	}
	held := o.Held
	if adopt {
		held = agent.Cost{}
	}
	for _, row := range r.rows {
		r.before = r.before.Max(row.Before)
		if adopt && row.Held != (agent.Cost{}) {
			r.adopted = &hold{r: r, day: row.Day, c: row.Held}
			held = changed(held, agent.Cost{}, row.Held)
		}
	}
	r.ctx, r.stop = context.WithCancel(ctx)
	if err := r.Sync(ctx, o.Spent, held); err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

// Close ends the work of r, which may be nil. It waits until nothing is being written. What was settled and is not written by then is
// corrected by Sync, or by the next owner.
func (r *RunAccount) Close() {
	if r == nil {
		return
	}
	r.stop()
	r.work.Wait()
}

// limits returns the current limits. If they were removed, nothing is limited.
func (r *RunAccount) limits() Limits {
	if l, ok := r.a.known(r.id.Account); ok {
		return l
	}
	return Limits{PerDay: agent.NoLimit(), InFlight: agent.NoLimit(), Zone: time.UTC}
}

// Left implements spending.Account.
func (r *RunAccount) Left() agent.Cost {
	l := r.limits()
	r.mu.Lock()
	defer r.mu.Unlock()
	return l.PerDay.Min(l.InFlight).Min(r.lastLeft)
}

// lock acquires the right to write the ledger. The error is the cause of ctx.
func (r *RunAccount) lock(ctx context.Context) error {
	select {
	case r.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *RunAccount) unlock() { <-r.op }

// Reserve implements spending.Account.
func (r *RunAccount) Reserve(ctx context.Context, w spending.Want, instead spending.AccountHold) (agent.Cost, spending.AccountHold, error) {
	old, _ := instead.(*hold)
	if old == nil {
		old, w = r.adoptedHold(w)
	}
	deadline := time.NewTimer(maxWait)
	defer deadline.Stop()
	first, last := false, false
	for {
		freed := r.line.wait()
		if first || last || !r.line.busy() {
			res, q, err := r.try(ctx, w, old, last)
			switch {
			case err != nil:
				return agent.Cost{}, nil, err
			case res.OK:
				return res.Granted, r.granted(w, old, res, q.Day), nil
			case last || q.cannotFit(res.Use):
				return agent.Cost{}, nil, q.Limits.reached(r.id.Account, res.Use, q.Least, r.a.c.Clock())
			}
		}
		if !first {
			select {
			case r.line.first <- struct{}{}:
				first = true
				defer func() { <-r.line.first }()
				continue
			case <-deadline.C:
				last = true
				continue
			case <-ctx.Done():
				return agent.Cost{}, nil, context.Cause(ctx)
			}
		}
		again := time.NewTimer(askAgain)
		select {
		case <-freed:
		case <-again.C:
		case <-deadline.C:
			last = true
		case <-ctx.Done():
		}
		again.Stop()
		if ctx.Err() != nil {
			return agent.Cost{}, nil, context.Cause(ctx)
		}
	}
}

// adoptedHold returns what an earlier owner held, if it was adopted and not replaced yet, and w with
// at least that: the work that it was reserved for may still spend all of it.
func (r *RunAccount) adoptedHold(w spending.Want) (*hold, spending.Want) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.adopted
	if old == nil || old.over {
		return nil, w
	}
	w.Least = w.Least.Max(old.c).Min(w.Most)
	w.Enough = w.Enough.Max(w.Least)
	return old, w
}

// Resume implements spending.Account.
func (r *RunAccount) Resume(c agent.Cost) spending.AccountHold {
	r.op <- struct{}{}
	defer r.unlock()
	h := &hold{r: r, c: counted(c), day: r.rows[len(r.rows)-1].Day}
	for _, row := range r.rows {
		if row.Held.Covers(h.c) {
			h.day = row.Day
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h.syncs = r.syncs
	return h
}

// request returns what is asked of the ledger.
func (r *RunAccount) request(w spending.Want, old *hold, l Limits, now time.Time) *Reserve {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := &Reserve{Day: l.Day(now), Least: l.limited(w.Least), Enough: l.limited(w.Enough), Most: w.Most, Kept: r.kept, Limits: l}
	if w.Part {
		q.Part = share
	}
	if old != nil && !old.over {
		q.Instead, q.InsteadDay = old.c, old.day
		if old.keep {
			q.Kept = changed(q.Kept, old.c, agent.Cost{})
		}
	}
	return q
}

// try asks the ledger for a reservation, and writes what was settled. If the ledger cannot be
// written, it stops the drive.
func (r *RunAccount) try(ctx context.Context, w spending.Want, old *hold, last bool) (res Booked, q *Reserve, err error) {
	if err := r.lock(ctx); err != nil {
		return res, nil, err
	}
	defer r.unlock()
	q = r.request(w, old, r.limits(), r.a.c.Clock())
	q.Last = last
	res, err = r.book(ctx, q)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		err = r.o.Fail(err)
	}
	return res, q, err
}

// granted returns a reservation that was made, and ends the one that it replaces.
func (r *RunAccount) granted(w spending.Want, old *hold, res Booked, day string) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &hold{r: r, day: day, c: counted(res.Granted), keep: w.Keep, syncs: r.syncs}
	if old != nil && !old.over {
		old.over = true
		if old.keep {
			r.kept = changed(r.kept, old.c, agent.Cost{})
		}
	}
	if h.keep {
		r.kept = changed(r.kept, agent.Cost{}, h.c)
	}
	return h
}

// book writes what was settled, and q if it is not nil. The caller holds op.
func (r *RunAccount) book(ctx context.Context, q *Reserve) (Booked, error) {
	done, rows := r.unwritten()
	if len(done) > 0 {
		if err := r.o.Commit(ctx); err != nil { // until then, a crash would make it cost more
			return Booked{}, err
		}
	}
	r.unsure = true
	res, err := r.a.c.Ledger.BookUse(ctx, r.id, Booking{Rows: rows, Reserve: q})
	if err != nil {
		return res, err
	}
	r.unsure, r.rows = false, res.Rows
	r.mu.Lock()
	r.settled = r.settled[len(done):]
	if q != nil {
		r.lastLeft = free(q.Limits.PerDay, res.Use.Spent, res.Use.Held, agent.Cost{}).Min(free(q.Limits.InFlight, agent.Cost{}, res.Use.InFlight, agent.Cost{}))
	}
	r.mu.Unlock()
	if len(done) > 0 {
		r.line.tell()
	}
	return res, nil
}

// unwritten returns what was settled and is not written, and the rows with it. The caller holds op.
func (r *RunAccount) unwritten() ([]settlement, []Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	done, rows := slices.Clone(r.settled), slices.Clone(r.rows)
	for _, s := range done {
		for i := range rows {
			if rows[i].Day == s.day {
				rows[i].Held = notNegative(changed(rows[i].Held, s.released, agent.Cost{}))
				rows[i].Spent = changed(rows[i].Spent, agent.Cost{}, s.used)
			}
		}
	}
	return done, rows
}

func notNegative(c agent.Cost) agent.Cost { return c.Max(agent.Cost{}) }

// Settle implements spending.AccountHold.
func (h *hold) Settle(spent agent.Cost) {
	r := h.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.over || h.syncs != r.syncs {
		return
	}
	h.over = true
	if h.keep {
		r.kept = changed(r.kept, h.c, agent.Cost{})
	}
	r.settled = append(r.settled, settlement{h.day, h.c, saturated(spent)})
	if !r.writing && r.ctx.Err() == nil {
		r.writing = true
		r.work.Go(r.write)
	}
}

// write writes what was settled, until there is nothing left. After an error it ends: the next
// booking writes it.
func (r *RunAccount) write() {
	for r.writeOnce() {
	}
}

// writeOnce writes what was settled and reports whether to call it again.
func (r *RunAccount) writeOnce() bool {
	var err error
	if err = r.lock(r.ctx); err == nil {
		r.mu.Lock()
		some := len(r.settled) > 0
		r.mu.Unlock()
		if some {
			_, err = r.book(r.ctx, nil)
		}
		r.unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing = err == nil && len(r.settled) > 0
	return r.writing
}

// Sync writes what the run has spent and holds according to its journal, whose events must be
// durable or part of what the caller will record. Reservations that have not ended are void. It does
// nothing if the ledger has that already.
func (r *RunAccount) Sync(ctx context.Context, spent, held agent.Cost) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	r.mu.Lock()
	some := len(r.settled) > 0
	r.mu.Unlock()
	if some {
		if err := r.o.Commit(ctx); err != nil {
			return err
		}
	}
	r.mu.Lock()
	r.syncs++
	r.kept = agent.Cost{}
	r.mu.Unlock()
	_, rows := r.unwritten()
	rows = r.balanced(rows, changed(saturated(spent), r.before, agent.Cost{}), counted(held))
	if slices.Equal(rows, r.rows) && !some && !r.unsure {
		return nil
	}
	r.unsure = true
	res, err := r.a.c.Ledger.BookUse(ctx, r.id, Booking{Rows: rows})
	if err != nil {
		return err
	}
	r.unsure, r.rows = false, res.Rows
	r.mu.Lock()
	r.settled = nil
	r.mu.Unlock()
	r.line.tell()
	return nil
}

// balanced returns rows with at least so much spent, and so much held, altogether. What is missing in spent is added to
// the oldest rows that hold as much, and the rest to the newest row.
func (r *RunAccount) balanced(rows []Row, spent, held agent.Cost) []Row {
	for _, of := range []func(*agent.Cost) *int64{func(c *agent.Cost) *int64 { return &c.Tokens }, func(c *agent.Cost) *int64 { return &c.Micros }} {
		missing, hold := max(*of(&spent), 0), *of(&held)
		for i := range rows {
			missing -= *of(&rows[i].Spent)
		}
		for i := range rows {
			n := min(max(missing, 0), *of(&rows[i].Held))
			*of(&rows[i].Spent) += n
			*of(&rows[i].Held) -= n
			missing -= n
		}
		for i := len(rows) - 1; i >= 0; i-- {
			n := min(hold, *of(&rows[i].Held))
			*of(&rows[i].Held) = n
			hold -= n
		}
		*of(&rows[len(rows)-1].Spent) += max(missing, 0)
		*of(&rows[len(rows)-1].Held) += max(hold, 0)
	}
	return rows
}

var _ spending.Account = (*RunAccount)(nil)
