package push

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestT_18_ABusyHostHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(Limits{PerHost: 2, PerAccount: 4, Total: 8})
		var held *slot
		for range 2 {
			var err error
			if held, err = s.acquire(t.Context(), "dead", "a"); err != nil {
				t.Fatal(err)
			}
		}
		third := make(chan error, 1)
		go func() {
			_, err := s.acquire(t.Context(), "dead", "a")
			third <- err
		}()
		synctest.Wait()
		if _, err := s.acquire(t.Context(), "new", "b"); err != nil { // at once
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, host := range []string{"dead", "new"} { // half of what an account has is taken by what is not known to work
			if _, err := s.acquire(short, host, "a"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("a wait that ends: %v", err)
			}
		}
		s.works["well"] = struct{}{}
		for range 2 {
			if _, err := s.acquire(t.Context(), "well", "a"); err != nil { // at once
				t.Fatal(err)
			}
		}
		select {
		case <-third:
			t.Fatal("a third call to a host with two slots")
		default:
		}
		s.release(held, false)
		if err := <-third; err != nil {
			t.Fatal(err)
		}
	})
}

func TestT_18_SlotsAreNeverMoreThanThereAre(t *testing.T) {
	s := newSlots(Limits{PerHost: 3, PerAccount: 5, Total: 7})
	var hosts [4]atomic.Int32
	var total atomic.Int32
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			h := i % len(hosts)
			host, account := string(rune('a'+h)), string(rune('A'+i%2))
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*time.Millisecond)
			defer cancel()
			if i%3 > 0 {
				ctx = t.Context()
			}
			held, err := s.acquire(ctx, host, account)
			if err != nil {
				return
			}
			if n := hosts[h].Add(1); n > 3 {
				t.Errorf("%d calls to one host", n)
			}
			if n := total.Add(1); n > 7 {
				t.Errorf("%d calls in all", n)
			}
			hosts[h].Add(-1)
			total.Add(-1)
			s.release(held, i%5 > 0)
		})
	}
	wg.Wait()
	if len(s.taken) != 0 || len(s.waiting) != 0 {
		t.Errorf("left are %v, %d", s.taken, len(s.waiting))
	}
}
