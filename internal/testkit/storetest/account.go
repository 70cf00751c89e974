package storetest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/agent"
)

// Days and amounts of the tests of the ledger.
const (
	monday  = "2026-03-02"
	tuesday = "2026-03-03"
)

func amount(n int64) agent.Cost { return agent.Cost{Tokens: n, Micros: 10 * n} }

// capped are limits of a day and of what is in flight. 0 is no limit.
func capped(day, flight int64) account.Limits {
	l := account.Limits{PerDay: agent.NoLimit(), InFlight: agent.NoLimit(), Zone: time.UTC}
	if day > 0 {
		l.PerDay = amount(day)
	}
	if flight > 0 {
		l.InFlight = amount(flight)
	}
	return l
}

// exactly is a reservation of n, no less.
func exactly(day string, n int64, l account.Limits) *account.Reserve {
	return &account.Reserve{Day: day, Least: amount(n), Enough: amount(n), Most: amount(n), Limits: l}
}

// ledger is a ledger under test.
type ledger struct {
	testing.TB
	store.Store
}

func (l ledger) open(r account.Run, day string) []account.Row {
	l.Helper()
	rows, err := l.OpenUse(l.Context(), r, day, agent.Cost{})
	if err != nil {
		l.Fatalf("OpenUse(%v): %v", r, err)
	}
	return rows
}

func (l ledger) book(r account.Run, b account.Booking) account.Booked {
	l.Helper()
	res, err := l.BookUse(l.Context(), r, b)
	if err != nil {
		l.Fatalf("BookUse(%v): %v", r, err)
	}
	return res
}

// wants wants what an account has spent and holds for a day and in flight.
func (l ledger) wants(name, day string, spent, held, flight int64) {
	l.Helper()
	u, err := l.Use(l.Context(), name, day)
	if want := (account.Use{Spent: amount(spent), Held: amount(held), InFlight: amount(flight)}); err != nil || u != want {
		l.Errorf("%s uses %+v, %v on %s, want %+v", name, u, err, day, want)
	}
}

// Runs of the tests of the ledger.
var (
	one = account.Run{Account: "acme", Root: "t1", Epoch: 1}
	two = account.Run{Account: "acme", Root: "t2", Epoch: 1}
)

// ledgers tests account.Ledger.
func ledgers(t *testing.T, open Open) {
	fresh := func(t *testing.T) ledger { return ledger{t, open(t, NewClock().Now)} }
	reservations(t, fresh)
	owners(t, fresh)
	t.Run("C-07 what was spent before there were limits counts once", func(t *testing.T) {
		l := fresh(t)
		raise := func(day string, n int64) {
			if err := l.RaiseUse(t.Context(), "acme", day, amount(n)); err != nil {
				t.Fatal(err)
			}
		}
		raise(monday, 30)
		raise(monday, 20)
		l.wants("acme", monday, 30, 0, 0)
		l.wants("acme", tuesday, 0, 0, 0)
		l.wants("other", monday, 0, 0, 0)
		l.open(one, monday)
		if res := l.book(one, account.Booking{Reserve: exactly(monday, 71, capped(100, 0))}); res.OK {
			t.Errorf("more than the limit: %+v", res)
		}
		l.book(one, account.Booking{Reserve: exactly(monday, 70, capped(100, 0))})
		raise(monday, 100)
		l.wants("acme", monday, 30, 70, 70)
		raise(monday, 105)
		l.wants("acme", monday, 35, 70, 70)
		l.book(one, account.Booking{Rows: []account.Row{{Day: monday, Spent: amount(60)}}})
		l.wants("acme", monday, 95, 0, 0)
	})
	t.Run("C-07 any number of runs that race for a cap stay within it", func(t *testing.T) {
		l := fresh(t)
		raceForCap(t, []store.Store{l.Store}, 40)
	})
	t.Run("P11 requests are counted together", func(t *testing.T) { requestsTogether(t, open) })
	t.Run("C-07 limits are kept and replaced", func(t *testing.T) { storedLimits(t, fresh(t)) })
}

// reservations tests what reservations and settlements add up to.
func reservations(t *testing.T, fresh func(*testing.T) ledger) {
	t.Run("C-07 a reservation counts until it is settled", func(t *testing.T) {
		l := fresh(t)
		rows := l.open(one, monday)
		if want := []account.Row{{Day: monday}}; !reflect.DeepEqual(rows, want) {
			t.Fatalf("rows %v, want %v", rows, want)
		}
		l.open(two, monday)
		first := account.Booking{Rows: rows, Reserve: exactly(monday, 60, capped(100, 0))}
		for range 2 { // the same booking again: its reply may have been lost
			if res := l.book(one, first); !res.OK || res.Granted != amount(60) || len(res.Rows) != 1 || res.Rows[0].Held != amount(60) {
				t.Fatalf("%+v", res)
			}
		}
		l.wants("acme", monday, 0, 60, 60)
		if res := l.book(two, account.Booking{Rows: []account.Row{{Day: monday}}, Reserve: exactly(monday, 41, capped(100, 0))}); res.OK {
			t.Errorf("granted %v of 40", res.Granted)
		}
		l.book(one, account.Booking{Rows: []account.Row{{Day: monday, Spent: amount(50)}}})
		l.wants("acme", monday, 50, 0, 0)
		if res := l.book(two, account.Booking{Rows: []account.Row{{Day: monday}}, Reserve: exactly(monday, 50, capped(100, 0))}); !res.OK {
			t.Errorf("50 of 50 refused: %+v", res)
		}
		l.wants("acme", monday, 50, 50, 50)
		l.wants("other", monday, 0, 0, 0)
	})

	t.Run("C-07 each day and what is in flight have limits of their own", func(t *testing.T) {
		l := fresh(t)
		rows := l.open(one, monday)
		res := l.book(one, account.Booking{Rows: rows, Reserve: exactly(monday, 100, capped(100, 150))})
		next := exactly(tuesday, 51, capped(100, 150))
		if res := l.book(one, account.Booking{Rows: res.Rows, Reserve: next}); res.OK {
			t.Errorf("%+v are in flight, more than 150", res.Use)
		}
		next = exactly(tuesday, 50, capped(100, 150))
		if res = l.book(one, account.Booking{Rows: res.Rows, Reserve: next}); !res.OK {
			t.Errorf("refused: %+v", res)
		}
		l.wants("acme", monday, 0, 100, 150)
		l.wants("acme", tuesday, 0, 50, 150)
		l.book(one, account.Booking{Rows: []account.Row{{Day: monday, Spent: amount(120)}, {Day: tuesday, Spent: amount(1)}}}) // more than was reserved
		l.wants("acme", monday, 120, 0, 0)
		l.wants("acme", tuesday, 1, 0, 0)
	})

}

// owners tests that only the owner with the latest epoch writes.
func owners(t *testing.T, fresh func(*testing.T) ledger) {
	t.Run("C-07 an owner with a later epoch fences the one before", func(t *testing.T) {
		l := fresh(t)
		rows := l.open(one, monday)
		held := l.book(one, account.Booking{Rows: rows, Reserve: exactly(monday, 10, capped(100, 0))}).Rows
		later := one
		later.Epoch = 2
		if got := l.open(later, tuesday); !reflect.DeepEqual(got, held) {
			t.Errorf("the next owner sees %v, want %v", got, held)
		}
		for _, b := range []account.Booking{{Rows: rows}, {Rows: held, Reserve: exactly(tuesday, 1, capped(100, 0))}} {
			if _, err := l.BookUse(l.Context(), one, b); !errors.Is(err, agent.ErrFenced) {
				t.Errorf("BookUse of the owner before: %v, want ErrFenced", err)
			}
		}
		if _, err := l.OpenUse(l.Context(), one, monday, agent.Cost{}); !errors.Is(err, agent.ErrFenced) {
			t.Errorf("OpenUse of the owner before: %v, want ErrFenced", err)
		}
		l.wants("acme", monday, 0, 10, 10)
		l.book(later, account.Booking{Rows: []account.Row{{Day: monday, Spent: amount(10)}}})
		l.wants("acme", monday, 10, 0, 0)
	})

	t.Run("C-07 an owner without rows fences, too", func(t *testing.T) {
		l := fresh(t)
		later := one
		later.Epoch = 2
		l.open(later, monday)
		if _, err := l.BookUse(l.Context(), one, account.Booking{Reserve: exactly(tuesday, 1, capped(100, 0))}); !errors.Is(err, agent.ErrFenced) {
			t.Errorf("%v, want ErrFenced", err)
		}
	})

	t.Run("C-07 what was spent before the account had limits does not count", func(t *testing.T) {
		l := fresh(t)
		rows, err := l.OpenUse(t.Context(), one, monday, amount(7))
		if err != nil || len(rows) != 1 || rows[0].Before != amount(7) {
			t.Fatal(rows, err)
		}
		rows[0].Before = amount(9) // ignored
		l.book(one, account.Booking{Rows: rows, Reserve: exactly(monday, 1, capped(100, 0))})
		if rows := l.open(one, tuesday); rows[0].Before != amount(7) {
			t.Errorf("before %v", rows[0].Before)
		}
		l.wants("acme", monday, 0, 1, 1)
	})
}

// requestsTogether tests buckets of requests: they are emptied by all, below nothing if too many were made, and
// fill with the time of the store.
func requestsTogether(t *testing.T, open Open) {
	clock := NewClock()
	s := open(t, clock.Now)
	bucket := func(owner string, made int) account.Requests {
		return account.Requests{Owner: owner, PerSecond: 2, Capacity: 10, Made: made}
	}
	wants := func(list []account.Requests, want ...float64) {
		t.Helper()
		left, err := s.CountRequests(t.Context(), list)
		if err != nil || len(left) != len(want) {
			t.Fatal(left, err)
		}
		for i := range want {
			if math.Abs(left[i]-want[i]) > 0.01 {
				t.Errorf("%v are left, want %v", left, want)
			}
		}
	}
	wants([]account.Requests{bucket("acme", 0)}, 10)
	wants([]account.Requests{bucket("zoo", 4), bucket("acme/ann", 1), bucket("acme", 7)}, 6, 9, 3)
	wants([]account.Requests{bucket("acme", 7), bucket("zoo", 0)}, -4, 6)
	clock.Move(3 * time.Second)
	wants([]account.Requests{bucket("acme", 0), bucket("zoo", 0), bucket("acme/ann", 0)}, 2, 10, 10)
	clock.Move(time.Hour)
	wants([]account.Requests{bucket("acme", 1)}, 9)
	if n, err := s.Servers(t.Context()); err != nil || n != 1 {
		t.Errorf("%d servers, %v", n, err)
	}
}

// storedLimits tests limits that are set and removed.
func storedLimits(t *testing.T, l ledger) {
	wake, stop := l.WatchAccountLimits()
	defer stop()
	n := int64(5)
	put := func(s account.Stored) {
		if err := l.PutAccountLimits(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		<-wake
	}
	at := time.UnixMilli(1_700_000_000_123).UTC()
	put(account.Stored{Account: "b", Limits: &teamv1.AccountLimits{MaxTokensPerDay: &n}, Changed: at, ChangedBy: "acme/ann"})
	put(account.Stored{Account: "a", Limits: &teamv1.AccountLimits{TimeZone: "Europe/Berlin"}, Changed: at})
	put(account.Stored{Account: "b", Limits: &teamv1.AccountLimits{MaxTokensInFlight: &n}, Changed: at.Add(time.Second), ChangedBy: "acme/bob"})
	list, err := l.AccountLimits(t.Context())
	if err != nil || len(list) != 2 || list[0].Account != "a" || list[1].ChangedBy != "acme/bob" || !list[1].Changed.Equal(at.Add(time.Second)) ||
		!proto.Equal(list[1].Limits, &teamv1.AccountLimits{MaxTokensInFlight: &n}) {
		t.Errorf("%v, %v", list, err)
	}
	put(account.Stored{Account: "b"})
	if list, err := l.AccountLimits(t.Context()); err != nil || len(list) != 1 || list[0].Account != "a" {
		t.Errorf("after the removal of one: %v, %v", list, err)
	}
}

// raceForCap has runs on several handles of a store reserve and settle at the same time, and wants
// the sum never to exceed the cap. What a run was refused it does not spend.
func raceForCap(t *testing.T, stores []store.Store, runs int) {
	t.Helper()
	const limit, each = 1000, 7
	var mu sync.Mutex
	var spent int64
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			s := stores[i%len(stores)]
			r := account.Run{Account: "acme", Root: fmt.Sprint("race", i), Epoch: 1}
			rows, err := s.OpenUse(t.Context(), r, monday, agent.Cost{})
			for n := 0; err == nil && n < 10; n++ {
				var res account.Booked
				q := exactly(monday, each, capped(limit, 0))
				q.Most, q.Least = amount(2*each), amount(1)
				if res, err = s.BookUse(t.Context(), r, account.Booking{Rows: rows, Reserve: q}); err != nil {
					break
				}
				rows = res.Rows
				if res.Use.Spent.Tokens+res.Use.Held.Tokens > limit || res.Use.Spent.Micros+res.Use.Held.Micros > 10*limit {
					t.Errorf("%+v is more than the limit", res.Use)
				}
				if !res.OK {
					continue
				}
				used := 1 + (int64(i)+int64(n))%res.Granted.Tokens // at most what was granted
				rows[0].Held, rows[0].Spent = agent.Cost{}, agent.Cost{Tokens: rows[0].Spent.Tokens + used, Micros: rows[0].Spent.Micros + 10*used}
				if res, err = s.BookUse(t.Context(), r, account.Booking{Rows: rows}); err == nil {
					rows = res.Rows
					mu.Lock()
					spent += used
					mu.Unlock()
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ledger{t, stores[0]}.wants("acme", monday, spent, 0, 0)
	if spent > limit || spent < limit/2 {
		t.Errorf("%d spent of %d", spent, limit)
	}
}

// RaceForCap runs the race test of the ledger on several handles of one store.
func RaceForCap(t *testing.T, stores []store.Store) { raceForCap(t, stores, 40*len(stores)) }
