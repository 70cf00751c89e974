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
		done, err := g.Allow("far")
		if err != nil {
			t.Fatal(err)
		}
		done(v)
	}
}

func refused(t *testing.T, g *upstream.Guard) *agent.Error {
	t.Helper()
	_, err := g.Allow("far")
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
			if g.Open("far") != "" {
				t.Fatal("it is open after 19 calls")
			}
			calls(t, g, 1, agent.JudgementFailed)
			e := refused(t, g)
			if !e.Retry || e.RetryAfter != 5*time.Second || e.Details["agent"] != "far" || !strings.Contains(e.Message, "try again in 5s") {
				t.Errorf("%+v", e)
			}
			if g.Open("far") != "circuit breaker open" || g.Open("near") != "" {
				t.Error(g.Open("far"), g.Open("near"))
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
			done, err := g.Allow("far")
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
			old, err := g.Allow("far")
			if err != nil {
				t.Fatal(err)
			}
			calls(t, g, 20, agent.JudgementFailed)
			time.Sleep(5 * time.Second)
			probe, err := g.Allow("far")
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
	allowed := func() int {
		n := 0
		for g.MayRetry("m") {
			n++
		}
		return n
	}
	g.Called("m")
	if n := allowed(); n != 3 {
		t.Errorf("R-002-32 %d repetitions of one call, never below 3", n)
	}
	for range 59 {
		g.Called("m")
	}
	if n := allowed(); n != 3 { // 6 of 60, 3 are done
		t.Errorf("R-002-32 %d more of 60 calls", n)
	}
	if !g.MayRetry("other") {
		t.Error("R-002-32 each upstream has its own")
	}
	now = now.Add(10 * time.Second)
	if n := allowed(); n != 3 {
		t.Errorf("R-002-32 %d after ten seconds", n)
	}
	now = now.Add(5 * time.Second)
	if n := allowed(); n != 0 {
		t.Errorf("R-002-32 %d after five more", n)
	}
}

func TestGuard_ManyAtOnce(t *testing.T) {
	g := upstream.New(upstream.Config{Probe: time.Millisecond})
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for i := range 500 {
				g.Called("m")
				g.MayRetry("m")
				if done, err := g.Allow("far"); err == nil {
					done(agent.Judgement((worker + i) % 3))
				}
				_ = g.Open("far")
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
		g.Called("m")
		done, err := g.Allow("far")
		if err != nil {
			b.Fatal(err)
		}
		done(agent.JudgementAnswered)
	}
}
