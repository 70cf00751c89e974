package upstream_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// calls makes calls that end in the same way.
func calls(t *testing.T, g *upstream.Guard, n int, v agent.Judgement) {
	t.Helper()
	for range n {
		done, err := g.Allow("acme", "far")
		if err != nil {
			t.Fatal(err)
		}
		done(v)
	}
}

func refused(t *testing.T, g *upstream.Guard) *agent.Error {
	t.Helper()
	_, err := g.Allow("acme", "far")
	var e *agent.Error
	if !errors.As(err, &e) || e.Reason != agent.ReasonBreakerOpen {
		t.Fatalf("want BREAKER_OPEN, got %v", err)
	}
	return e
}

func TestR_002_33_Breaker(t *testing.T) {
	t.Run("R-002-33 it opens at half of twenty calls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			g := upstream.New(upstream.Config{Log: zap.New(core)})
			calls(t, g, 10, agent.JudgementAnswered)
			calls(t, g, 9, agent.JudgementFailed)
			if g.Open("acme", "far") != "" {
				t.Fatal("it is open after 19 calls")
			}
			calls(t, g, 1, agent.JudgementFailed)
			e := refused(t, g)
			if !e.Retry || e.RetryAfter != 5*time.Second || e.Details["agent"] != "far" || !strings.Contains(e.Message, "try again in 5s") {
				t.Errorf("%+v", e)
			}
			if g.Open("acme", "far") != "circuit breaker open" || g.Open("acme", "near") != "" {
				t.Error(g.Open("acme", "far"), g.Open("acme", "near"))
			}
			if l := logs.All(); len(l) != 1 || l[0].Level != zap.WarnLevel || l[0].ContextMap()["is"] != "open" || l[0].ContextMap()["agent"] != "far" {
				t.Error(l)
			}
		})
	})
	t.Run("R-002-33 less than half does not open it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := upstream.New(upstream.Config{})
			for range 20 {
				calls(t, g, 6, agent.JudgementAnswered)
				calls(t, g, 4, agent.JudgementFailed)
			}
		})
	})
	t.Run("R-002-33 calls of long ago do not count", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := upstream.New(upstream.Config{})
			calls(t, g, 19, agent.JudgementFailed)
			time.Sleep(11 * time.Second)
			calls(t, g, 19, agent.JudgementFailed)
			calls(t, g, 1, agent.JudgementFailed)
			refused(t, g)
		})
	})
	t.Run("R-002-33 after five seconds one call is let through, and its answer closes it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := upstream.New(upstream.Config{})
			calls(t, g, 20, agent.JudgementFailed)
			time.Sleep(5*time.Second - 1)
			refused(t, g)
			time.Sleep(time.Nanosecond)
			done, err := g.Allow("acme", "far")
			if err != nil {
				t.Fatal(err)
			}
			if e := refused(t, g); !strings.Contains(e.Message, "half open") {
				t.Error(e)
			}
			done(agent.JudgementAnswered)
			done(agent.JudgementFailed) // changes nothing
			calls(t, g, 19, agent.JudgementFailed)
		})
	})
	t.Run("R-002-33 a probe that fails, or says nothing, opens it again", func(t *testing.T) {
		for _, v := range []agent.Judgement{agent.JudgementFailed, agent.JudgementNone} {
			synctest.Test(t, func(t *testing.T) {
				g := upstream.New(upstream.Config{})
				calls(t, g, 20, agent.JudgementFailed)
				time.Sleep(5 * time.Second)
				calls(t, g, 1, v)
				refused(t, g)
				time.Sleep(5 * time.Second)
				calls(t, g, 1, agent.JudgementAnswered)
				calls(t, g, 1, agent.JudgementAnswered)
			})
		}
	})
	t.Run("R-002-33 what began before does not judge a probe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := upstream.New(upstream.Config{})
			old, err := g.Allow("acme", "far")
			if err != nil {
				t.Fatal(err)
			}
			calls(t, g, 20, agent.JudgementFailed)
			time.Sleep(5 * time.Second)
			probe, err := g.Allow("acme", "far")
			if err != nil {
				t.Fatal(err)
			}
			old(agent.JudgementAnswered)
			refused(t, g)
			probe(agent.JudgementAnswered)
			calls(t, g, 1, agent.JudgementAnswered)
		})
	})
	t.Run("calls that say nothing do not count", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := upstream.New(upstream.Config{})
			calls(t, g, 100, agent.JudgementNone)
			calls(t, g, 19, agent.JudgementFailed)
			calls(t, g, 1, agent.JudgementNone)
		})
	})
}

func TestR_002_32_RetryBudget(t *testing.T) {
	now := time.Unix(1000, 0)
	g := upstream.New(upstream.Config{Clock: func() time.Time { return now }})
	// atOnce returns the number of retries without a wait, and whether the next one is refused.
	atOnce := func(account, name string) (n int, refused bool) {
		for {
			wait, err := g.Retry(account, name)
			if wait > 0 || err != nil {
				return n, err != nil
			}
			n++
		}
	}
	g.Called("acme", "m")
	if n, refused := atOnce("acme", "m"); n != 3 || refused {
		t.Errorf("R-002-32 %d repetitions of one call at once, then refused: %v", n, refused)
	}
	if wait, err := g.Retry("acme", "m"); err != nil || wait != 40*time.Millisecond {
		t.Errorf("R-002-32 the repetition after that waits %v, %v", wait, err)
	}
	for range 49 {
		g.Called("acme", "m")
	}
	if n, refused := atOnce("acme", "m"); n != 0 || !refused { // 5 of 50 are done
		t.Errorf("R-002-32 P22 %d more of 50 calls within a second, then refused: %v", n, refused)
	}
	if _, err := g.Retry("acme", "m"); err == nil || !strings.Contains(err.Error(), "retry budget of the account is used up; while it makes 50 calls or more in 1s, it may retry 10 %") {
		t.Errorf("R-002-32 refused because %v", err)
	}
	if n, refused := atOnce("acme", "other"); n != 3 || !refused {
		t.Errorf("R-002-32 each upstream has its own: %d, then refused: %v", n, refused)
	}
	if n, refused := atOnce("beta", "m"); n != 3 || refused {
		t.Errorf("R-002-32 another account has its own: %d, then refused: %v", n, refused)
	}
	now = now.Add(10 * time.Second)
	if n, refused := atOnce("acme", "m"); n != 3 || refused {
		t.Errorf("R-002-32 %d after ten seconds, then refused: %v", n, refused)
	}
	now = now.Add(5 * time.Second)
	if n, _ := atOnce("acme", "m"); n != 0 {
		t.Errorf("R-002-32 %d after five more", n)
	}
}

// TestP22_AMinuteOfFailures: an account makes 50 calls a second for a minute, and all fail. Its upstream gets at most 1.2
// times as many. At one call less, each is retried as often as it asks for.
func TestP22_AMinuteOfFailures(t *testing.T) {
	for rate, most := range map[int]float64{49: 3, 50: 1.2, 500: 1.2} {
		begin := time.Unix(1000, 0)
		now := begin
		g := upstream.New(upstream.Config{Clock: func() time.Time { return now }})
		calls, attempts, refused := 0, 0, 0
		for second := range 60 {
			for i := range rate {
				now = begin.Add(time.Duration(second)*time.Second + time.Duration(i)*time.Second/time.Duration(rate))
				g.Called("acme", "m")
				calls++
				attempts++
				for range 2 {
					if _, err := g.Retry("acme", "m"); err != nil {
						refused++
						break
					}
					attempts++
				}
			}
		}
		if float64(attempts) > most*float64(calls) || rate < 50 && refused > 0 {
			t.Errorf("%d calls a second: %d attempts for %d calls, %d retries refused", rate, attempts, calls, refused)
		}
	}
}

// TestR_002_33_BreakersOfAccounts: the failures of one account do not open the breaker of another.
func TestR_002_33_BreakersOfAccounts(t *testing.T) {
	g := upstream.New(upstream.Config{})
	calls(t, g, 20, agent.JudgementFailed)
	refused(t, g)
	if _, err := g.Allow("beta", "far"); err != nil || g.Open("beta", "far") != "" {
		t.Errorf("the calls of acme keep beta from calling: %v", err)
	}
}

func TestGuard_ManyAtOnce(t *testing.T) {
	g := upstream.New(upstream.Config{Probe: time.Millisecond})
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for i := range 500 {
				g.Called("acme", "m")
				_, _ = g.Retry("acme", "m")
				if done, err := g.Allow("acme", "far"); err == nil {
					done(agent.Judgement((worker + i) % 3))
				}
				_ = g.Open("acme", "far")
			}
		})
	}
	wg.Wait()
}

// BenchmarkAllow is what a call pays.
func BenchmarkAllow(b *testing.B) {
	g := upstream.New(upstream.Config{})
	b.ReportAllocs()
	for b.Loop() {
		g.Called("acme", "m")
		done, err := g.Allow("acme", "far")
		if err != nil {
			b.Fatal(err)
		}
		done(agent.JudgementAnswered)
	}
}
