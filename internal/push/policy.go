package push

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Policy configures retries and timeouts. Zero values stand for the defaults.
type Policy struct {
	// First and Most limit the backoff. The pause after a failed attempt is random, up to a
	// limit that starts at First and doubles with each attempt until it is Most. The
	// defaults are 1 s and 5 min.
	First, Most time.Duration
	// Tries is the maximum number of attempts for a notification; the default is 20.
	Tries int
	// Age is how long after the first attempt a notification is dropped in any case; the
	// default is 24 h.
	Age time.Duration
	// Timeout is the timeout of a call, including the connection; the default is 10 s.
	Timeout time.Duration
	// MaxWait is the longest pause that a receiver can request with Retry-After; the
	// default is 1 h.
	MaxWait time.Duration
	// Lease is how long a configuration remains claimed by a process that has crashed; the
	// default is one and a half times Timeout.
	Lease time.Duration
	// Linger is how long a session waits for the next event before it ends. The next event
	// starts a new one. The default is 15 s.
	Linger time.Duration
	// Busy is the minimum pause of a configuration whose host or account has too many
	// sessions. The pause is random, up to ten times Busy. The default is 3 s.
	Busy time.Duration
}

func (p Policy) withDefaults() Policy {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&p.First, time.Second},
		{&p.Most, 5 * time.Minute},
		{&p.Age, 24 * time.Hour},
		{&p.Timeout, 10 * time.Second},
		{&p.MaxWait, time.Hour},
		{&p.Linger, 15 * time.Second},
		{&p.Busy, 3 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if p.Tries <= 0 {
		p.Tries = 20
	}
	if p.Lease <= 0 {
		p.Lease = p.Timeout + p.Timeout/2
	}
	return p
}

// pause returns how long to wait after a number of failed attempts: exponential backoff
// with full jitter, but at least what the receiver asked for.
func (p Policy) pause(tries int, asked time.Duration, random func(n int64) int64) time.Duration {
	limit := min(p.First, p.Most)
	for ; tries > 1 && limit < p.Most; tries-- {
		limit = min(limit, p.Most/2) * 2
		if limit >= p.Most-1 {
			limit = p.Most
		}
	}
	return max(time.Duration(random(int64(limit)+1)), min(asked, p.MaxWait))
}

// exhausted reports whether a notification is dropped after a number of failed attempts, the
// first of them at since. If failing is true, the previous notification was dropped, and
// this one is dropped after a single attempt.
func (p Policy) exhausted(tries int, since, now time.Time, failing bool) bool {
	return failing || tries >= p.Tries || now.Sub(since) >= p.Age
}

// retryAfter returns the pause that a Retry-After header asks for, in seconds or as a date;
// 0 without one.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if v == "" {
		return 0
	}
	if n, err := strconv.ParseInt(v, 10, 32); err == nil || errors.Is(err, strconv.ErrRange) { // on overflow n is the maximum
		return max(time.Duration(n)*time.Second, 0)
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return max(at.Sub(now), 0)
}
