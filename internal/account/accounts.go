package account

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/agent"
)

// pollInterval is how often the limits are read, in case a notification was lost.
const pollInterval = 5 * time.Second

// Config configures Accounts. Ledger is required.
type Config struct {
	Ledger Ledger
	// Costs are what the tasks of all accounts have spent, also of those without limits; nil means that a
	// new limit counts only what is spent from then on.
	Costs cost.Store
	// Settings are those in effect. The limits of accounts there take precedence over those that are set by the API. What is
	// in use beyond a new limit is not taken back: the limit refuses only more. Nil means the defaults.
	Settings *settings.Live
	// Counts counts what tasks use; nil means that neither queued tasks nor stored bytes are limited.
	Counts Counts
	// Shared says that other replicas may use the store, so that requests are counted in it. It needs
	// Counts.
	Shared bool
	// Changed is called when limits have changed, because they may allow more tasks to run: after a
	// notification of the ledger. Nil means no call.
	Changed func()
	// Clock returns the time of the store; nil means time.Now.
	Clock func() time.Time
	// Log receives why limits cannot be read; nil means no log.
	Log *zap.Logger
}

// Accounts knows the limits of all accounts. It is safe for concurrent use.
type Accounts struct {
	c Config

	uploads atomic.Int64  // bytes of all accounts
	wake    chan struct{} // holds one signal: something is marked

	marks  sync.Mutex
	marked []string // owners and accounts of the next report; guarded by marks

	mu     sync.Mutex
	begun  map[string]bool   // accounts with limits whose ledger has what they have spent; guarded by mu
	read   bool              // stored has been read; guarded by mu
	stored map[string]Stored // limits that were set by the API; guarded by mu
	lines  map[string]*line  // by account; guarded by mu
	uses   map[string]*use   // by account or owner; guarded by mu
}

// file returns the limits in the configuration file, by account.
func (a *Accounts) file() map[string]*teamv1.AccountLimits { return a.c.Settings.Load().GetAccounts() }

// New returns the accounts of a store.
func New(c Config) *Accounts {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Settings == nil {
		c.Settings = settings.Of(nil)
	}
	return &Accounts{c: c, wake: make(chan struct{}, 1), begun: map[string]bool{}, lines: map[string]*line{}, uses: map[string]*use{}}
}

// Serve reads limits that are set by other replicas, and counts requests with them, until ctx ends.
func (a *Accounts) Serve(ctx context.Context) {
	var sharing sync.WaitGroup
	defer sharing.Wait()
	if a.c.Shared {
		sharing.Go(func() { a.share(ctx) })
	}
	wake, stop := a.c.Ledger.WatchAccountLimits()
	defer stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	failing, woken := false, false
	for {
		err := a.refresh(ctx)
		if err == nil && a.c.Changed != nil && woken {
			a.c.Changed()
		}
		if err != nil && ctx.Err() == nil && !failing {
			a.c.Log.Warn("the limits of accounts cannot be read; those that are known are used", zap.Error(err))
		}
		failing = err != nil
		woken = false
		a.forget()
		select {
		case <-wake:
			woken = true
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// refresh reads the limits that were set by the API.
func (a *Accounts) refresh(ctx context.Context) error {
	list, err := a.c.Ledger.AccountLimits(ctx)
	if err != nil {
		return fmt.Errorf("read the limits of accounts: %w", err)
	}
	stored := make(map[string]Stored, len(list))
	for _, s := range list {
		stored[s.Account] = s
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read, a.stored = true, stored
	return nil
}

// limits returns the limits on what the tasks of an account spend, and false if it has none. If it has
// got them since the last call, its ledger has what it has spent on this day when limits returns. The
// store is used only for that, and if it has not been read since the start; the error is then the store's.
func (a *Accounts) limits(ctx context.Context, account string) (Limits, bool, error) {
	l, ok, err := a.current(ctx, account)
	if err == nil {
		err = a.begin(ctx, account, l, ok)
	}
	return l, ok, err
}

// begin raises the ledger of an account that has got limits to what the account has spent on this day.
// After a start this is repeated for all accounts, and changes nothing for those that had limits before.
func (a *Accounts) begin(ctx context.Context, account string, l Limits, limited bool) error {
	a.mu.Lock()
	begun := a.begun[account]
	if !limited {
		delete(a.begun, account)
	}
	a.mu.Unlock()
	if !limited || begun {
		return nil
	}
	now := a.c.Clock()
	if a.c.Costs != nil {
		sums, err := a.c.Costs.Costs(ctx, cost.Query{From: l.firstHour(now), Until: cost.HourOf(now) + 1, Account: &account})
		if err != nil {
			return err
		}
		var spent cost.Amounts
		for _, s := range sums {
			spent.Add(s.Amounts)
		}
		if err := a.c.Ledger.RaiseUse(ctx, account, l.Day(now), agent.CostOf(spent.Spent())); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun[account] = true
	return nil
}

// current returns the limits on what the tasks of an account spend, and false if it has none. The store
// is read only if it has not been read since the start; the error is then the store's.
func (a *Accounts) current(ctx context.Context, account string) (Limits, bool, error) {
	if l, ok := a.file()[account]; ok {
		return LimitsOf(l), limitsSpending(l), nil
	}
	a.mu.Lock()
	read := a.read
	a.mu.Unlock()
	if !read {
		if err := a.refresh(ctx); err != nil {
			return Limits{}, false, err
		}
	}
	l, ok := a.known(account)
	return l, ok, nil
}

// known returns the limits on what the tasks of an account spend as last read, and false if it has none.
func (a *Accounts) known(account string) (Limits, bool) {
	l, _ := a.limitsOf(account)
	return LimitsOf(l), limitsSpending(l)
}

// Admit returns an ACCOUNT_LIMIT_REACHED error if the account of an owner has spent all that it may spend
// today, and an INSUFFICIENT_RESOURCES error if too many of its tasks wait, or are stored. Amounts that
// are only reserved do not count as spent, because they may be released. Other errors are the store's.
func (a *Accounts) Admit(ctx context.Context, owner string) error {
	if err := a.admitTask(ctx, owner); err != nil {
		return err
	}
	account := identity.AccountOf(owner)
	l, ok, err := a.limits(ctx, account)
	if err != nil || !ok || l.PerDay == agent.NoLimit() {
		return err
	}
	now := a.c.Clock()
	use, err := a.c.Ledger.Use(ctx, account, l.Day(now))
	if err != nil {
		return err
	}
	if need := (agent.Cost{Tokens: 1, Micros: 1}); !free(l.PerDay, use.Spent, agent.Cost{}, agent.Cost{}).Covers(l.limited(need)) {
		use.Held, use.InFlight = agent.Cost{}, agent.Cost{}
		e := l.reached(account, use, l.limited(need), now)
		e.Retry, e.RetryAfter = true, max(l.Reset(now).Sub(now), time.Second)
		return e
	}
	return nil
}

// AdmitGrant returns an ACCOUNT_LIMIT_REACHED error if people grant a task more than its account may still
// spend today. Amounts that are only reserved do not count as spent. Other errors are the store's. For an
// account without limits the store is not read.
func (a *Accounts) AdmitGrant(ctx context.Context, account string, grant agent.Cost) error {
	l, ok, err := a.limits(ctx, account)
	if err != nil || !ok || l.PerDay == agent.NoLimit() {
		return err
	}
	now := a.c.Clock()
	use, err := a.c.Ledger.Use(ctx, account, l.Day(now))
	if err != nil {
		return err
	}
	left := free(l.PerDay, use.Spent, agent.Cost{}, agent.Cost{})
	if left.Covers(grant) {
		return nil
	}
	return l.tooMuchGranted(account, left, grant, now)
}

// limited returns c without amounts that have no limit.
func (l Limits) limited(c agent.Cost) agent.Cost {
	if l.PerDay.Tokens == agent.Unlimited && l.InFlight.Tokens == agent.Unlimited {
		c.Tokens = 0
	}
	if l.PerDay.Micros == agent.Unlimited && l.InFlight.Micros == agent.Unlimited {
		c.Micros = 0
	}
	return c
}

// line orders the reservations of an account in this process that have to wait: only the first one
// asks the store. It is safe for concurrent use.
type line struct {
	first chan struct{} // semaphore: held by the first one that waits

	mu    sync.Mutex
	freed chan struct{} // closed at the next release in this process; nil if nothing waits; guarded by mu
}

// lineOf returns the line of an account.
func (a *Accounts) lineOf(account string) *line {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lines[account]
	if l == nil {
		l = &line{first: make(chan struct{}, 1)}
		a.lines[account] = l
	}
	return l
}

// busy reports whether a reservation waits.
func (l *line) busy() bool { return len(l.first) > 0 }

// wait returns a channel that is closed at the next release in this process.
func (l *line) wait() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed == nil {
		l.freed = make(chan struct{})
	}
	return l.freed
}

// tell wakes those that wait for a release.
func (l *line) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

// names returns the accounts that have limits, sorted.
func (a *Accounts) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []string
	for name := range a.stored {
		list = append(list, name)
	}
	for name := range a.file() {
		list = append(list, name)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// maxUsedAccounts is how many accounts Used looks at, in the order of their names.
const maxUsedAccounts = 1000

// Used returns, for each limit on what the tasks of an account spend, which part of it that account has used which has
// used most of it: 0 to 1, more if a limit was lowered. Limits that no account has are missing.
func (a *Accounts) Used(ctx context.Context) (map[string]float64, error) {
	now, most := a.c.Clock(), map[string]float64{}
	names := a.names()
	for _, name := range names[:min(len(names), maxUsedAccounts)] {
		l, limited, err := a.limits(ctx, name)
		if err != nil {
			return nil, err
		}
		if !limited {
			continue
		}
		use, err := a.c.Ledger.Use(ctx, name, l.Day(now))
		if err != nil {
			return nil, err
		}
		day := agent.Cost{Tokens: use.Spent.Tokens + use.Held.Tokens, Micros: use.Spent.Micros + use.Held.Micros}
		for limit, of := range map[string][2]int64{
			"max_tokens_per_day": {day.Tokens, l.PerDay.Tokens}, "max_cost_per_day": {day.Micros, l.PerDay.Micros},
			"max_tokens_in_flight": {use.InFlight.Tokens, l.InFlight.Tokens}, "max_cost_in_flight": {use.InFlight.Micros, l.InFlight.Micros},
		} {
			if of[1] != agent.Unlimited && of[1] > 0 {
				most[limit] = max(most[limit], float64(of[0])/float64(of[1]))
			}
		}
	}
	return most, nil
}
