package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// serveAnswers serves answers that format makes of the text of a message, and counts the requests.
func serveAnswers(t *testing.T, format func(n int64, text string) string) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			Params struct {
				Message struct {
					Parts []part `json:"parts"`
				} `json:"message"`
			} `json:"params"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || len(req.Params.Message.Parts) != 1 {
			t.Errorf("a request that is not one: %v", err)
			return
		}
		fmt.Fprint(w, format(requests.Add(1), req.Params.Message.Parts[0].Text))
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

// TestA_27_EveryAnswerIsChecked ends the load at the first answer that is not the right one.
func TestA_27_EveryAnswerIsChecked(t *testing.T) {
	const good = `{"result":{"task":{"status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"parts":[{"text":"%s"}]}]}}}`
	for _, c := range []struct {
		name, format, want string
		old                bool
	}{
		{"right", good, "", false},
		{"another text", strings.ReplaceAll(good, "%s", "%sx"), "the text is", false},
		{"not completed", strings.ReplaceAll(good, "COMPLETED", "WORKING"), `the task is "TASK_STATE_WORKING", want "TASK_STATE_COMPLETED"`, false},
		{"no artifact", `{"result":{"task":{"status":{"state":"TASK_STATE_COMPLETED"}}}}%.0s`, "0 artifacts, want 1", false},
		{"a message", `{"result":{"message":{"parts":[{"text":"%s"}]}}}`, "no task", false},
		{"an error", `{"error":{"code":-32603,"message":"broken"}}%.0s`, "error -32603: broken", false},
		{"not JSON", `%s`, "not JSON", false},
		{"0.3, a task", `{"result":{"kind":"task","status":{"state":"completed"},"artifacts":[{"parts":[{"text":"%s"}]}]}}`, "", true},
		{"0.3, a message", `{"result":{"kind":"message","parts":[{"kind":"text","text":"%s"}]}}`, "", true},
		{"0.3, an answer in the history", `{"result":{"kind":"task","status":{"state":"completed"},"history":[{"parts":[{"text":"question"}]},{"parts":[{"text":"%s"}]}]}}`, "", true},
		{"0.3, no answer", `{"result":{"kind":"task","status":{"state":"completed"}}}%.0s`, "0 artifacts, want 1", true},
		{"an answer in the history", `{"result":{"task":{"status":{"state":"TASK_STATE_COMPLETED"},"history":[{"parts":[{"text":"%s"}]}]}}}`, "0 artifacts, want 1", false},
		{"0.3, another text", `{"result":{"kind":"message","parts":[{"kind":"text","text":"other"}]}}%.0s`, "the text is", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, requests := serveAnswers(t, func(_ int64, text string) string { return strings.TrimSpace(fmt.Sprintf(c.format, text)) })
			r, err := load{url: url, callers: 4, time: time.Minute, calls: 20, old: c.old}.run(t.Context())
			switch {
			case c.want == "" && (err != nil || r.calls != 20 || requests.Load() != 20 || r.p99 < r.p50 || r.rate() <= 0):
				t.Errorf("%+v after %d requests, %v", r, requests.Load(), err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want %q", err, c.want)
			case c.want != "" && requests.Load() > 4:
				t.Errorf("%d requests after a wrong answer, want at most one of each caller", requests.Load())
			}
		})
	}
}

// TestA_27_TheLoadIsBounded refuses loads without a bound and for other machines.
func TestA_27_TheLoadIsBounded(t *testing.T) {
	good := load{url: "http://127.0.0.1:1/", callers: 1, time: time.Second}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*load){
		"loopback":    func(l *load) { l.url = "http://192.0.2.1/" },
		"a loopback":  func(l *load) { l.url = "http://localhost.example/" },
		"http://HOST": func(l *load) { l.url = "https://127.0.0.1/" },
		"callers: 0":  func(l *load) { l.callers = 0 },
		"callers: 2":  func(l *load) { l.callers = 2000 },
		"time: 0s":    func(l *load) { l.time = 0 },
		"time: 1h":    func(l *load) { l.time = time.Hour },
		"calls: -1":   func(l *load) { l.calls = -1 },
	} {
		l := good
		change(&l)
		if _, err := l.run(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
