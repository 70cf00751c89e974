package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// load sends messages to an A2A server over JSON-RPC and checks every answer.
type load struct {
	url     string
	callers int           // each sends its next message when it has the answer
	time    time.Duration // how long callers begin new calls
	calls   int           // the most calls of all callers together; 0 means no limit
	// old has the messages sent as in A2A 0.3. A direct answer without a task is accepted then, and a
	// task that has its answer in the history.
	old bool
}

// result is what a load measured.
type result struct {
	calls    int
	took     time.Duration
	p50, p99 time.Duration
}

// rate returns the answered calls per second.
func (r result) rate() float64 { return float64(r.calls) / r.took.Seconds() }

const (
	maxAnswer   = 1 << 20          // bytes
	callTime    = 30 * time.Second // timeout of one call
	maxTime     = 10 * time.Minute
	maxCallers  = 1024
	messageSize = 100 // characters of the text
)

// check returns an error that names what is wrong with the load.
func (l load) check() error {
	u, err := url.Parse(l.url)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("url: %q must be http://HOST:PORT/PATH", l.url)
	}
	if ip := net.ParseIP(u.Hostname()); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("url: %q must be a loopback IP address, such as 127.0.0.1; the load is for a server on this machine", u.Hostname())
	}
	switch {
	case l.callers < 1 || l.callers > maxCallers:
		return fmt.Errorf("callers: %d must be 1 to %d", l.callers, maxCallers)
	case l.time <= 0 || l.time > maxTime:
		return fmt.Errorf("time: %v must be more than 0 and at most %v", l.time, maxTime)
	case l.calls < 0:
		return fmt.Errorf("calls: %d must not be negative; 0 means no limit", l.calls)
	}
	return nil
}

// run runs the load. The first wrong answer ends it.
func (l load) run(ctx context.Context) (result, error) {
	if err := l.check(); err != nil {
		return result{}, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: l.callers, DisableCompression: true}
	defer transport.CloseIdleConnections()
	s := sender{load: l, client: &http.Client{Transport: transport, Timeout: callTime}, prefix: rand.Text()[:8]}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	all := make([][]time.Duration, l.callers)
	begin := time.Now()
	for i := range all {
		wg.Go(func() {
			var err error
			if all[i], err = s.repeat(ctx, begin); err != nil {
				cancel(err) // the first one wins
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	if err := context.Cause(ctx); err != nil {
		return result{}, err
	}
	times := slices.Concat(all...)
	slices.Sort(times)
	if len(times) == 0 {
		return result{}, errors.New("no call was made")
	}
	return result{calls: len(times), took: took, p50: times[len(times)/2], p99: times[len(times)*99/100]}, nil
}

// sender makes the calls of a load.
type sender struct {
	load
	client *http.Client
	prefix string // of message ids
	made   atomic.Int64
}

// repeat makes one call after the other until the load ends, and returns how long each took.
func (s *sender) repeat(ctx context.Context, begin time.Time) ([]time.Duration, error) {
	var times []time.Duration
	for last := begin; last.Sub(begin) < s.time; {
		n := s.made.Add(1)
		if s.calls > 0 && n > int64(s.calls) {
			break
		}
		if err := s.call(ctx, n); err != nil {
			return nil, fmt.Errorf("call %d: %w", n, err)
		}
		now := time.Now()
		times = append(times, now.Sub(last))
		last = now
	}
	return times, nil
}

// call sends a message and checks the answer.
func (s *sender) call(ctx context.Context, n int64) error {
	text := fmt.Sprintf("message %d ", n)
	text += strings.Repeat("x", messageSize-len(text))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(s.body(n, text)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if !s.old {
		req.Header.Set("A2A-Version", "1.0")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP %d: %s", resp.StatusCode, start(b))
	}
	if err := s.checkAnswer(b, text); err != nil {
		return fmt.Errorf("%w: %s", err, start(b))
	}
	return nil
}

// start returns the beginning of an answer, for an error.
func start(b []byte) string { return string(b[:min(len(b), 300)]) }

// body returns a request. The text needs no escapes.
func (s *sender) body(n int64, text string) []byte {
	if s.old {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"message/send","params":{"message":{"kind":"message","messageId":"%s-%d","role":"user","parts":[{"kind":"text","text":"%s"}]}}}`, n, s.prefix, n, text)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"SendMessage","params":{"message":{"messageId":"%s-%d","role":"ROLE_USER","parts":[{"text":"%s"}]}}}`, n, s.prefix, n, text)
}

type part struct {
	Text string `json:"text"`
}

type task struct {
	Status struct {
		State string `json:"state"`
	} `json:"status"`
	Artifacts []struct {
		Parts []part `json:"parts"`
	} `json:"artifacts"`
	History []struct {
		Parts []part `json:"parts"`
	} `json:"history"`
}

// answer is a response in both versions of the protocol: in 0.3 the result itself is the task, or a
// message with parts.
type answer struct {
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Result struct {
		Task *task  `json:"task"`
		Kind string `json:"kind"`
		task
		Parts []part `json:"parts"`
	} `json:"result"`
}

// checkAnswer returns an error unless the answer is a completed task with the text as its artifact.
func (s *sender) checkAnswer(b []byte, text string) error {
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	if a.Error != nil {
		return fmt.Errorf("error %d: %s", a.Error.Code, a.Error.Message)
	}
	state, t := "TASK_STATE_COMPLETED", a.Result.Task
	if s.old {
		state, t = "completed", &a.Result.task
	}
	parts := a.Result.Parts
	if !s.old || a.Result.Kind != "message" {
		switch {
		case t == nil:
			return errors.New("the answer has no task")
		case t.Status.State != state:
			return fmt.Errorf("the task is %q, want %q", t.Status.State, state)
		case len(t.Artifacts) == 1:
			parts = t.Artifacts[0].Parts
		case s.old && len(t.Artifacts) == 0 && len(t.History) > 0:
			parts = t.History[len(t.History)-1].Parts
		default:
			return fmt.Errorf("the task has %d artifacts, want 1", len(t.Artifacts))
		}
	}
	var got strings.Builder
	for _, p := range parts {
		got.WriteString(p.Text)
	}
	if got.String() != text {
		return fmt.Errorf("the text is %q, want %q", got.String(), text)
	}
	return nil
}
