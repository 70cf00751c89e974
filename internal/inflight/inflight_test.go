package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/pkg/agent"
)

// The size of the budgets of tests, and how many bytes an account may hold for each that is free.
const size, headroom = 1000, 2

// weights are those of the accounts of tests.
func weights(account string) int {
	if account == "heavy" {
		return 10
	}
	return 1
}

// fill reserves memory in pieces of 10 until an account is refused, and returns how much it got.
func fill(t *testing.T, b *inflight.Budget, account string) (n int64, holds []*inflight.Hold) {
	t.Helper()
	for {
		h, err := b.Reserve(inflight.Request, account, 10)
		if err != nil {
			refused(t, err)
			return n, holds
		}
		n, holds = n+10, append(holds, h)
	}
}

func refused(t *testing.T, err error) {
	t.Helper()
	e := agent.AsError(err)
	if e.Code != agent.CodeResourceExhausted || e.Reason != agent.ReasonInsufficientResources || !e.Retry || e.RetryAfter <= 0 ||
		e.Details[agent.DetailLimit] != "max_bytes_in_flight" || e.Details[agent.DetailValue] != fmt.Sprint(size) {
		t.Errorf("the error is %+v", e)
	}
}

func empty(t *testing.T, b *inflight.Budget) {
	t.Helper()
	held, _ := b.Use()
	for kind, n := range held {
		if n != 0 {
			t.Errorf("%d bytes of kind %s are still held", n, kind)
		}
	}
}

func TestShares(t *testing.T) {
	t.Run("one account alone gets most, and the next ones find some", func(t *testing.T) {
		b := inflight.New(size, nil)
		one, _ := fill(t, b, "one")
		two, _ := fill(t, b, "two")
		three, _ := fill(t, b, "three")
		if one != 660 || two != 220 || three != size/8/10*10 {
			t.Error(one, two, three)
		}
	})
	t.Run("an account with more weight gets more", func(t *testing.T) {
		b := inflight.New(size, weights)
		light, _ := fill(t, b, "light")
		if heavy, _ := fill(t, inflight.New(size, weights), "heavy"); light != 660 || heavy != 950 {
			t.Error(light, heavy)
		}
	})
	t.Run("a lone answer is granted, however large", func(t *testing.T) {
		b := inflight.New(size, nil)
		fill(t, b, "one")
		for _, account := range []string{"one", "two"} {
			if _, err := b.Reserve(inflight.Answer, account, 100*size); err != nil {
				t.Error(err)
			}
			_, err := b.Reserve(inflight.Answer, account, 100*size)
			refused(t, err)
		}
		if n, _ := fill(t, b, "three"); n < size/8-10 {
			t.Errorf("an account that holds nothing got %d bytes", n)
		}
	})
	t.Run("what exists already is a debt", func(t *testing.T) {
		b := inflight.New(size, nil)
		h := b.Take(inflight.Run, "one", 10)
		h.Grow(900)
		first, second := b.Take(inflight.Request, "one", 10), b.Take(inflight.Request, "one", 10)
		_, err := b.Reserve(inflight.Request, "one", 30)
		refused(t, err)
		refused(t, first.More(30))
		h.Set(100)
		if err := first.More(30); err != nil {
			t.Error(err)
		}
		second.Release()
		h.Release()
		h.Release()
		h.Grow(5)
		first.Release()
		empty(t, b)
	})
	t.Run("a new size counts at once", func(t *testing.T) {
		b := inflight.New(size/10, nil)
		b.Take(inflight.Request, "one", size/10*headroom/(headroom+1))
		b.Resize(size)
		if more, _ := fill(t, b, "one"); more != 600 {
			t.Error(more)
		}
	})
	t.Run("without a budget nothing is counted", func(t *testing.T) {
		var b *inflight.Budget
		h, err := b.Reserve(inflight.Run, "one", 1<<40)
		if h != nil || err != nil {
			t.Error(h, err)
		}
		h, err = b.Wait(t.Context(), inflight.Run, "one", 1<<40, time.Second)
		h.Grow(1)
		h.Set(1)
		if err = errors.Join(err, h.More(1)); err != nil {
			t.Error(err)
		}
		b.Take(inflight.Run, "one", 1).Release()
	})
}

func TestWait(t *testing.T) {
	t.Parallel()
	t.Run("a request that fits does not wait behind a call that does not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := inflight.New(size, weights)
			held := []*inflight.Hold{b.Take(inflight.Request, "light", 100), b.Take(inflight.Call, "light", 100)}
			ctx, leave := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if h, err := b.Wait(ctx, inflight.Call, "light", 900, time.Hour); err == nil {
					h.Release()
					t.Error("there was memory for the call")
				}
			})
			synctest.Wait()
			h, err := b.Wait(t.Context(), inflight.Request, "light", 10, time.Second)
			if err != nil {
				t.Error(err)
			}
			leave()
			wg.Wait()
			for _, h := range append(held, h) {
				h.Release()
			}
			empty(t, b)
		})
	})
	t.Run("in turn, the account that holds least for its weight first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := inflight.New(size, weights)
			all := b.Take(inflight.Request, "other", 10*size)
			var mu sync.Mutex
			var order []string
			var wg sync.WaitGroup
			for _, account := range []string{"light", "light", "heavy", "heavy"} {
				b.Take(inflight.Run, account, 100) // so that none is granted for nothing
				b.Take(inflight.Call, account, 1)
				wg.Go(func() {
					h, err := b.Wait(t.Context(), inflight.Call, account, 100, time.Hour)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, account)
					mu.Unlock()
					time.Sleep(time.Second)
					h.Release()
				})
				synctest.Wait()
			}
			all.Release()
			wg.Wait()
			if len(order) != 4 {
				t.Error(order)
			}
		})
	})
	t.Run("bounded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := inflight.New(size, nil)
			b.Take(inflight.Call, "one", size)
			began := time.Now()
			_, err := b.Wait(t.Context(), inflight.Call, "one", 10+size/8, time.Minute)
			if refused(t, err); time.Since(began) != time.Minute {
				t.Errorf("it waited for %v", time.Since(began))
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(agent.ErrCanceled) })
			if _, err := b.Wait(ctx, inflight.Call, "one", 10+size/8, time.Minute); !errors.Is(err, agent.ErrCanceled) {
				t.Error(err)
			}
		})
	})
	t.Run("the first call of an account does not wait behind other kinds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := inflight.New(size, nil)
			b.Take(inflight.Run, "one", 2*size)
			go func() { _, _ = b.Wait(t.Context(), inflight.Run, "one", size, time.Minute) }()
			synctest.Wait()
			h, err := b.Wait(t.Context(), inflight.Call, "one", size, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error)
			go func() {
				_, err := b.Wait(t.Context(), inflight.Call, "one", size, time.Minute)
				done <- err
			}()
			synctest.Wait()
			h.Release()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	})
}

// TestWaitOfARun: of two holds for which something waits, the one that was granted first is first.
func TestWaitOfARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inflight.New(size, nil)
		older, younger := b.Take(inflight.Run, "one", 10), b.Take(inflight.Run, "one", size)
		first := b.Take(inflight.Call, "one", 10)
		var order []string
		var wg sync.WaitGroup
		for name, run := range map[string]*inflight.Hold{"younger": younger, "older": older} {
			wg.Go(func() {
				if name == "older" {
					time.Sleep(time.Second) // it asks later
				}
				h, err := run.Wait(t.Context(), inflight.Call, 100, time.Hour)
				if err != nil {
					t.Error(err)
				}
				order = append(order, name)
				h.Release()
			})
		}
		time.Sleep(2 * time.Second)
		first.Release()
		wg.Wait()
		if order[0] != "older" {
			t.Error(order)
		}
	})
}

// TestManyAtOnce has accounts reserve, wait, grow and release at random: nobody starves, and nothing is left.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	b := inflight.New(size, weights)
	var wg sync.WaitGroup
	for i := range 32 {
		account := []string{"one", "two", "heavy"}[i%3]
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range 300 {
				h, err := b.Wait(t.Context(), inflight.Kind(r.IntN(3)), account, r.Int64N(size), time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				h.Grow(r.Int64N(100))
				if r.IntN(2) == 0 {
					h.Set(1)
				}
				h.Release()
			}
		})
	}
	wg.Wait()
	empty(t, b)
}

func TestShared(t *testing.T) {
	b := inflight.New(size, nil)
	var s inflight.Shared
	n := 0
	reserve := func() (*inflight.Hold, error) {
		n++
		return b.Reserve(inflight.Stream, "one", 100)
	}
	first, _ := s.Acquire(reserve)
	second, _ := s.Acquire(reserve)
	first()
	first()
	if held, _ := b.Use(); held["stream"] != 100 || n != 1 {
		t.Error(held, n)
	}
	second()
	empty(t, b)
	third, err := s.Acquire(reserve)
	if err != nil || n != 2 {
		t.Error(err, n)
	}
	third()
	empty(t, b)
}

func BenchmarkReserve(b *testing.B) {
	b.ReportAllocs()
	budget := inflight.New(1<<30, nil)
	for b.Loop() {
		h, _ := budget.Reserve(inflight.Request, "acme", 1000)
		h.Release()
	}
}
