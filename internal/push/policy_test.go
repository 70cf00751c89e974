package push

import (
	"math"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestA_18_PausesAreBoundedAndGrow(t *testing.T) {
	p := Policy{}.withDefaults()
	most := func(n int64) int64 { return n - 1 }
	least := func(int64) int64 { return 0 }
	for _, c := range []struct {
		tries int
		asked time.Duration
		want  time.Duration // the longest
	}{
		{1, 0, time.Second}, {2, 0, 2 * time.Second}, {5, 0, 16 * time.Second}, {9, 0, 256 * time.Second},
		{10, 0, 5 * time.Minute}, {19, 0, 5 * time.Minute}, {1 << 20, 0, 5 * time.Minute},
		{1, time.Minute, time.Minute}, {10, time.Minute, 5 * time.Minute}, {1, 48 * time.Hour, time.Hour},
	} {
		if got := p.pause(c.tries, c.asked, most); got != c.want {
			t.Errorf("after %d tries, %v asked for: %v, want %v", c.tries, c.asked, got, c.want)
		}
		if got := p.pause(c.tries, c.asked, least); got != min(c.asked, time.Hour) {
			t.Errorf("after %d tries, %v asked for, at least: %v", c.tries, c.asked, got)
		}
	}
}

func TestA_18_PausesOfAnyPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			First: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "first")), Most: time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "most")),
		}.withDefaults()
		tries, asked := rapid.IntRange(0, 1000).Draw(t, "tries"), time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "asked"))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		got := p.pause(tries, asked, r.Int64N)
		if got < min(asked, p.MaxWait) || got > max(p.Most, min(asked, p.MaxWait)) {
			t.Fatalf("pause(%d, %v) = %v of %+v", tries, asked, got, p)
		}
	})
}

func TestA_18_WhatIsGivenUp(t *testing.T) {
	p := Policy{}.withDefaults()
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		name    string
		tries   int
		age     time.Duration
		failing bool
		want    bool
	}{
		{"the first try", 1, 0, false, false}, {"19 tries", 19, time.Hour, false, false}, {"20 tries", 20, time.Hour, false, true},
		{"almost a day", 2, 24*time.Hour - 1, false, false}, {"a day", 2, 24 * time.Hour, false, true}, {"after another", 1, 0, true, true},
	} {
		if got := p.exhausted(c.tries, now.Add(-c.age), now, c.failing); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestA_18_RetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "0": 0, "-3": 0, "soon": 0, "9e9": 0, "-99999999999999999999": 0,
		"2147483647": math.MaxInt32 * time.Second, "2147483648": math.MaxInt32 * time.Second, "99999999999999999999": math.MaxInt32 * time.Second,
		"Sun, 01 Mar 2026 12:01:30 GMT": 90 * time.Second, "Sun, 01 Mar 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("Retry-After: %q is %v, want %v", value, got, want)
		}
	}
}
