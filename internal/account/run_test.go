package account_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/agent"
)

// replica is a process that drives runs of the account acme.
type replica struct {
	testing.TB
	*account.Accounts
}

// replicas returns processes with one store. perDay and inFlight are in tokens; 0 is no limit.
func replicas(t testing.TB, n int, perDay, inFlight int64) (*sqlstore.Store, []replica) {
	l := &teamv1.AccountLimits{}
	if perDay > 0 {
		l.MaxTokensPerDay = &perDay
	}
	if inFlight > 0 {
		l.MaxTokensInFlight = &inFlight
	}
	s := memstore.Open(t)
	var all []replica
	for range n {
		all = append(all, replica{t, account.New(account.Config{Ledger: s, Settings: settings.Of(&teamv1.ServerSettings{Accounts: map[string]*teamv1.AccountLimits{"acme": l}})})})
	}
	return s, all
}

// opening is that of the owner of a run with an epoch. The run has spent and holds nothing on record.
func opening(root string, epoch int64) account.Opening {
	return account.Opening{
		Claim:  runs.Claim{Root: root, Owner: "acme/ann", Epoch: epoch},
		Commit: func(context.Context) error { return nil }, Fail: func(err error) error { return err },
	}
}

func (r replica) open(o account.Opening) *account.RunAccount {
	r.Helper()
	run, err := r.Open(r.Context(), o)
	if err != nil || run == nil {
		r.Fatalf("Open: %v, %v", run, err)
	}
	return run
}

func tokens(n int64) agent.Cost { return agent.Cost{Tokens: n} }

// exactly asks for n tokens, no less.
func exactly(n int64) spending.Want {
	return spending.Want{Least: tokens(n), Enough: tokens(n), Most: tokens(n)}
}

func reserve(t testing.TB, r *account.RunAccount, w spending.Want) spending.AccountHold {
	t.Helper()
	_, h, err := r.Reserve(t.Context(), w, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// wantUse wants what the account has spent and holds on a day.
func wantUse(t testing.TB, s *sqlstore.Store, day string, spent, held int64) {
	t.Helper()
	u, err := s.Use(t.Context(), "acme", day)
	if err != nil || u.Spent.Tokens != spent || u.Held.Tokens != held {
		t.Errorf("on %s: %+v, %v, want %d spent, %d held", day, u, err, spent, held)
	}
}

func today() string { return time.Now().UTC().Format(time.DateOnly) }

// wantRefused wants an error of the account, after a wait or at once.
func wantRefused(t testing.TB, r *account.RunAccount, w spending.Want, limit string, wait time.Duration) {
	t.Helper()
	began := time.Now()
	_, _, err := r.Reserve(t.Context(), w, nil)
	e := agent.AsError(err)
	if e == nil || e.Reason != agent.ReasonAccountLimit || e.Retry || e.Details[agent.DetailLimit] != limit || !agent.Binds(e, "team/member") {
		t.Errorf("%+v, want %s", e, limit)
	}
	if took := time.Since(began); took != wait {
		t.Errorf("refused after %v, want %v", took, wait)
	}
}

func TestC_07_RunAccount(t *testing.T) {
	test := func(name string, f func(t *testing.T)) {
		t.Run("C-07 "+name, func(t *testing.T) { synctest.Test(t, f) })
	}
	test("what is settled is booked after it is durable", func(t *testing.T) {
		s, on := replicas(t, 1, 100, 0)
		o, durable := opening("t", 1), make(chan struct{})
		o.Commit = func(ctx context.Context) error {
			select {
			case <-durable:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		r := on[0].open(o)
		defer r.Close()
		h := reserve(t, r, exactly(60))
		h.Settle(tokens(10))
		synctest.Wait()
		wantUse(t, s, today(), 0, 60)
		close(durable)
		synctest.Wait()
		wantUse(t, s, today(), 10, 0)
		h.Settle(tokens(99)) // ignored
		synctest.Wait()
		wantUse(t, s, today(), 10, 0)
	})
	test("a day's limit refuses at once, if waiting does not help", func(t *testing.T) {
		_, on := replicas(t, 1, 100, 0)
		r := on[0].open(opening("t", 1))
		defer r.Close()
		reserve(t, r, exactly(60)).Settle(tokens(60))
		wantRefused(t, r, exactly(41), "max_tokens_per_day", 0)
		reserve(t, r, exactly(40))
	})
	test("it waits for other runs here and elsewhere, in order", func(t *testing.T) {
		_, on := replicas(t, 2, 0, 100)
		a, b, c := on[0].open(opening("a", 1)), on[1].open(opening("b", 1)), on[1].open(opening("c", 1))
		defer a.Close()
		defer b.Close()
		defer c.Close()
		first := reserve(t, a, exactly(80))
		var order []string
		var mu sync.Mutex
		var waiting sync.WaitGroup
		for _, w := range []struct {
			name string
			r    *account.RunAccount
			n    int64
		}{{"b", b, 60}, {"c", c, 10}} { // c would fit now, but b was first
			waiting.Go(func() {
				h := reserve(t, w.r, exactly(w.n))
				mu.Lock()
				order = append(order, w.name)
				mu.Unlock()
				h.Settle(agent.Cost{})
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		if len(order) > 0 {
			t.Errorf("%v did not wait", order)
		}
		first.Settle(tokens(80))
		waiting.Wait()
		if fmt.Sprint(order) != "[b c]" {
			t.Errorf("order %v", order)
		}
	})
	test("it waits a limited time, and settles for the least", func(t *testing.T) {
		_, on := replicas(t, 2, 100, 0)
		a, b := on[0].open(opening("a", 1)), on[1].open(opening("b", 1))
		defer a.Close()
		defer b.Close()
		reserve(t, a, exactly(80))
		began := time.Now()
		c, _, err := b.Reserve(t.Context(), spending.Want{Least: tokens(5), Enough: tokens(30), Most: tokens(50)}, nil)
		if err != nil || c.Tokens != 20 || time.Since(began) != 30*time.Second {
			t.Errorf("%v, %v after %v, want 20 after 30s", c, err, time.Since(began))
		}
		wantRefused(t, b, exactly(1), "max_tokens_per_day", 30*time.Second)
	})
	test("a reservation that grows is exchanged, and does not wait for itself", func(t *testing.T) {
		s, on := replicas(t, 1, 100, 0)
		r := on[0].open(opening("t", 1))
		defer r.Close()
		keep := exactly(60)
		keep.Keep = true
		_, h, err := r.Reserve(t.Context(), keep, nil)
		if err != nil {
			t.Fatal(err)
		}
		keep.Least, keep.Enough, keep.Most = tokens(80), tokens(80), tokens(80)
		if _, h, err = r.Reserve(t.Context(), keep, h); err != nil {
			t.Fatal(err)
		}
		wantUse(t, s, today(), 0, 80)
		wantRefused(t, r, exactly(21), "max_tokens_per_day", 0)
		h.Settle(agent.Cost{})
		synctest.Wait()
		wantUse(t, s, today(), 0, 0)
	})
	test("what is settled after midnight counts for the day before", func(t *testing.T) {
		s, on := replicas(t, 1, 100, 150)
		r := on[0].open(opening("t", 1))
		defer r.Close()
		time.Sleep(24*time.Hour - time.Second)
		before := today()
		h := reserve(t, r, exactly(100))
		time.Sleep(2 * time.Second)
		wantRefused(t, r, exactly(51), "max_tokens_in_flight", 30*time.Second)
		next := reserve(t, r, exactly(50))
		h.Settle(tokens(90))
		synctest.Wait()
		next.Settle(tokens(5))
		synctest.Wait()
		wantUse(t, s, before, 90, 0)
		wantUse(t, s, today(), 5, 0)
	})
	test("the next owner books what is on record, and the one before nothing more", func(t *testing.T) {
		s, on := replicas(t, 2, 100, 0)
		dead := on[0].open(opening("t", 1))
		defer dead.Close()
		reserve(t, dead, exactly(10)).Settle(tokens(10))
		lost := reserve(t, dead, exactly(30)) // a model call, whose process stops
		reserve(t, dead, exactly(40))         // not on record yet
		synctest.Wait()
		wantUse(t, s, today(), 10, 70)
		o := opening("t", 2)
		o.Spent, o.Held = tokens(10+30), tokens(5)
		r := on[1].open(o)
		defer r.Close()
		wantUse(t, s, today(), 40, 5)
		lost.Settle(tokens(1))
		if _, _, err := dead.Reserve(t.Context(), exactly(1), nil); !errors.Is(err, agent.ErrFenced) {
			t.Errorf("the owner before: %v, want ErrFenced", err)
		}
		wantUse(t, s, today(), 40, 5)
		r.Resume(tokens(5)).Settle(tokens(2))
		synctest.Wait()
		wantUse(t, s, today(), 42, 0)
		open := reserve(t, r, exactly(3))
		if err := r.Sync(t.Context(), tokens(60), agent.Cost{}); err != nil {
			t.Fatal(err)
		}
		open.Settle(tokens(3)) // Sync has ended it
		synctest.Wait()
		wantUse(t, s, today(), 60, 0)
	})
	test("work elsewhere keeps its part from owner to owner", func(t *testing.T) {
		s, on := replicas(t, 2, 1000, 0)
		part := spending.Want{Least: tokens(1), Enough: tokens(1), Most: agent.NoLimit(), Part: true}
		a := on[0].open(opening("t", 1))
		defer a.Close()
		if c, _, err := a.Reserve(t.Context(), part, nil); err != nil || c != (agent.Cost{Tokens: 250, Micros: agent.Unlimited}) {
			t.Fatal(c, err)
		}
		o := opening("t", 2)
		o.Adopt = func(context.Context) (bool, error) { return true, nil }
		b := on[1].open(o)
		defer b.Close()
		wantUse(t, s, today(), 0, 250)
		if c, _, err := b.Reserve(t.Context(), part, nil); err != nil || c.Tokens != 250 {
			t.Error(c, err)
		}
		wantUse(t, s, today(), 0, 250)
	})
	test("what was spent before there were limits does not count", func(t *testing.T) {
		s, on := replicas(t, 1, 100, 0)
		o := opening("t", 3)
		o.Spent = tokens(500)
		r := on[0].open(o)
		defer r.Close()
		reserve(t, r, exactly(60)).Settle(tokens(60))
		if err := r.Sync(t.Context(), tokens(570), agent.Cost{}); err != nil {
			t.Fatal(err)
		}
		wantUse(t, s, today(), 70, 0)
	})
	test("a ledger that cannot be written stops the drive", func(t *testing.T) {
		broken := errors.New("broken")
		_, on := replicas(t, 1, 100, 0)
		o := opening("t", 1)
		o.Commit = func(context.Context) error { return broken }
		failed := false
		o.Fail = func(err error) error { failed = true; return err }
		r := on[0].open(o)
		defer r.Close()
		reserve(t, r, exactly(1)).Settle(tokens(1))
		if _, _, err := r.Reserve(t.Context(), exactly(1), nil); !errors.Is(err, broken) || !failed {
			t.Errorf("%v, %v", err, failed)
		}
	})
}

// TestC_07_AccountAnyHistory has runs on three replicas reserve, settle, stop without a word and
// be taken over, at random. What they spend, and what a run that stops had reserved on record, is
// never more than the limit, and the ledger is never below what was spent.
func TestC_07_AccountAnyHistory(t *testing.T) {
	for seed := uint64(0); seed < 400; seed += uint64(4 * sample.Stride()) {
		synctest.Test(t, func(t *testing.T) { anyHistory(t, seed) })
	}
}

// history is what a run has on record.
type history struct {
	spent, open int64
	epoch       int64
}

func anyHistory(t *testing.T, seed uint64) {
	const limit = 500
	s, on := replicas(t, 3, limit, 0)
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := int64(0)
	for i := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			h := history{}
			for range 3 {
				h.epoch++
				h.spent += h.open // interrupted calls of models
				h.open = 0
				o := opening(fmt.Sprint("t", i), h.epoch)
				o.Spent = tokens(h.spent)
				r := on[rnd.IntN(3)].open(o)
				for range rnd.IntN(6) {
					n := 1 + rnd.Int64N(60)
					c, hold, err := r.Reserve(t.Context(), spending.Want{Least: tokens(1 + n/4), Enough: tokens(1 + n/2), Most: tokens(1 + n)}, nil)
					if agent.AsError(err) != nil {
						continue
					}
					if rnd.IntN(8) == 0 { // it stops before the start of the call is on record
						break
					}
					h.open = c.Tokens
					if rnd.IntN(6) == 0 { // it stops in the call, or before its end is on record
						break
					}
					time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
					used := rnd.Int64N(c.Tokens + 1)
					h.open, h.spent = 0, h.spent+used
					hold.Settle(tokens(used))
					if rnd.IntN(8) == 0 {
						break
					}
				}
				r.Close()
			}
			h.spent += h.open
			o := opening(fmt.Sprint("t", i), h.epoch+1)
			o.Spent = tokens(h.spent)
			r := on[0].open(o)
			if err := r.Sync(t.Context(), tokens(h.spent), agent.Cost{}); err != nil {
				t.Error(err)
			}
			r.Close()
			mu.Lock()
			total += h.spent
			mu.Unlock()
		})
	}
	wg.Wait()
	u, err := s.Use(t.Context(), "acme", today())
	if err != nil || u.Spent.Tokens != total || u.Held.Tokens != 0 || u.InFlight.Tokens != 0 || total > limit {
		t.Errorf("seed %d: the ledger has %+v, %v; %d were spent, of %d", seed, u, err, total, limit)
	}
}

// TestC_07_Admit: see Admit.
func TestC_07_Admit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, on := replicas(t, 1, 100, 0)
		r := on[0].open(opening("t", 1))
		defer r.Close()
		h := reserve(t, r, exactly(100))
		if err := on[0].Admit(t.Context(), "acme"); err != nil {
			t.Errorf("what is only reserved counts: %v", err)
		}
		h.Settle(tokens(100))
		synctest.Wait()
		time.Sleep(90 * time.Minute)
		if e := agent.AsError(on[0].Admit(t.Context(), "acme")); e == nil || e.Reason != agent.ReasonAccountLimit || !e.Retry || e.RetryAfter != 22*time.Hour+30*time.Minute {
			t.Errorf("%+v", e)
		}
		if err := on[0].Admit(t.Context(), "other"); err != nil {
			t.Error(err)
		}
		time.Sleep(24 * time.Hour)
		if err := on[0].Admit(t.Context(), "acme"); err != nil {
			t.Errorf("on the next day: %v", err)
		}
	})
}

// TestC_07_DaysOfATimeZone: a day ends at midnight of the account's time zone, also when clocks change.
func TestC_07_DaysOfATimeZone(t *testing.T) {
	for _, c := range []struct{ zone, at, day, reset string }{
		{"", "2026-03-28T23:59:59Z", "2026-03-28", "2026-03-29T00:00:00Z"},
		{"Europe/Berlin", "2026-03-28T23:30:00Z", "2026-03-29", "2026-03-29T22:00:00Z"}, // 23 hours
		{"Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-25", "2026-10-25T23:00:00Z"}, // 25 hours
		{"America/Sao_Paulo", "2026-01-01T02:00:00Z", "2025-12-31", "2026-01-01T03:00:00Z"},
		{"Mars/Olympus", "2026-01-01T02:00:00Z", "2026-01-01", "2026-01-02T00:00:00Z"},
	} {
		l := account.LimitsOf(&teamv1.AccountLimits{TimeZone: c.zone, MaxTokensPerDay: proto.Int64(1)})
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if day, reset := l.Day(at), l.Reset(at).UTC().Format(time.RFC3339); day != c.day || reset != c.reset {
			t.Errorf("%s in %s: %s until %s, want %s until %s", c.at, c.zone, day, reset, c.day, c.reset)
		}
	}
}
