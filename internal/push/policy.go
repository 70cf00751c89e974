package push

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Policy says how receivers are treated.
type Policy struct {
	// First and Most bound the pause after a failed try: a random one up to First,
	// doubled with each further try, at most Most; 0 are 1 s and 5 min.
	First, Most time.Duration
	// Tries is after how many tries a notification is given up; 0 is 20.
	Tries int
	// Age is how long after the first try it is given up in any case; 0 is 24 h.
	Age time.Duration
	// Timeout bounds one call from the connection to the answer; 0 is 10 s.
	Timeout time.Duration
	// MaxWait bounds what a receiver can ask for by Retry-After; 0 is 1 h.
	MaxWait time.Duration
	// Lease is how long a configuration stays claimed by a process that is gone; 0
	// is Timeout and a half.
	Lease time.Duration
	// Linger is how long a session waits for more, before it starts anew with the
	// next event; 0 is 15 s.
	Linger time.Duration
	// Busy is the least and the tenth of the longest pause of a configuration whose
	// host or account has too many sessions; 0 is 3 s.
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

// pause is how long to wait after so many failed tries: full jitter, and not
// shorter than what the receiver asked for.
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

// spent reports whether a notification is given up after so many tries, the first
// of them at since. One that follows another that was given up has one try.
func (p Policy) spent(tries int, since, now time.Time, failing bool) bool {
	return failing || tries >= p.Tries || now.Sub(since) >= p.Age
}

// retryAfter is what an answer asks for: seconds, or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if v == "" {
		return 0
	}
	if n, err := strconv.ParseInt(v, 10, 32); err == nil || errors.Is(err, strconv.ErrRange) { // then the most that fits
		return max(time.Duration(n)*time.Second, 0)
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return max(at.Sub(now), 0)
}
